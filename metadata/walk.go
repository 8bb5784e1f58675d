package metadata

import "context"

const walkBatch = 1024

// Walk calls fn with every inode, in ascending order of their numbers, and
// ends with fn's first error. It reads in batches, so fn may use the store;
// inodes that come or go meanwhile may be seen or not, all others are seen
// once.
//
// Errors: fn's; ErrCorrupt at a record that Check would report.
func (s *Store) Walk(ctx context.Context, fn func(Inode) error) error {
	batch := make([]Inode, 0, walkBatch)
	for next := Ino(0); ; {
		batch = batch[:0]
		err := s.view(ctx, func(t *txn) error {
			from := t.key1(kindInode, uint64(next))
			return t.kv.Scan([]byte{kindInode}, from, func(key, value []byte) (bool, error) {
				rec, err := decodeRecord(keyIno(key), value)
				batch = append(batch, rec.Inode)
				return len(batch) < walkBatch, err
			})
		})
		if err != nil {
			return err
		}
		for i := range batch {
			if err := fn(batch[i]); err != nil {
				return err
			}
		}
		if len(batch) < walkBatch {
			return nil
		}
		next = batch[len(batch)-1].Ino + 1
	}
}
