package metadata

import "context"

// Receipts are texts that are noted with the removal of a file, and that a later run finds.
type Receipts struct{ store *Store }

// ReceiptsOf returns the receipts of a store.
func ReceiptsOf(s *Store) Receipts { return Receipts{s} }

// Unlink is Store.UnlinkSoon, and notes receipts in the same transaction. They stay until Drop.
func (r Receipts) Unlink(ctx context.Context, parent Ino, name string, texts []string) (Inode, error) {
	s := r.store
	return s.remove(ctx, s.soon(), parent, name, func(t *txn, dir *record, sl slot) (record, error) {
		for _, text := range texts {
			t.set(t.keyString(kindReceipt, text), encodeNumber(t.room(2), 1))
		}
		return t.unlink(dir, sl)
	})
}

// List returns the receipts that are noted.
func (r Receipts) List(ctx context.Context) ([]string, error) {
	return read(ctx, r.store, func(t *txn) (all []string, err error) {
		err = t.kv.Scan([]byte{kindReceipt}, nil, func(key, _ []byte) (bool, error) {
			all = append(all, string(key[1:]))
			return true, nil
		})
		return all, err
	})
}

// Drop removes receipts. It may return before it has written that; see Deferrer.
func (r Receipts) Drop(ctx context.Context, texts []string) error {
	return r.store.updateBy(ctx, r.store.soon(), 0, func(t *txn) error {
		for _, text := range texts {
			t.del(t.keyString(kindReceipt, text))
		}
		return nil
	})
}
