package metadata

import "context"

// Receipts are texts that are noted with the removal of a file, and that a later run finds.
type Receipts struct{ store *Store }

// ReceiptsOf returns the receipts of a store.
func ReceiptsOf(s *Store) Receipts { return Receipts{s} }

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
