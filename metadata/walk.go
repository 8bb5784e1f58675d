package metadata

import "context"

const walkBatch = 1024

// Walk calls fn with every inode, in ascending order of their numbers, and stops at fn's
// first error. It reads in batches, so fn may use the store; inodes that are created or
// removed meanwhile may be missed, all others are seen once.
//
// Errors: fn's; ErrCorrupt at a record that Check would report.
func (s *Store) Walk(ctx context.Context, fn func(Inode) error) error {
	return s.WalkAll(ctx, func(in Inode, unreadable error) error {
		if unreadable != nil {
			return unreadable
		}
		return fn(in)
	})
}

// WalkAll is Walk, but continues after an unreadable record, for which fn receives the
// inode number and the error.
func (s *Store) WalkAll(ctx context.Context, fn func(in Inode, unreadable error) error) error {
	type read struct {
		in  Inode
		err error
	}
	batch := make([]read, 0, walkBatch)
	for next := Ino(0); ; {
		batch = batch[:0]
		err := s.view(ctx, func(t *txn) error {
			from := t.key(kindInode, uint64(next))
			return t.kv.Scan([]byte{kindInode}, from, func(key, value []byte) (bool, error) {
				rec, err := decodeRecord(keyIno(key), value)
				rec.Ino = keyIno(key)
				batch = append(batch, read{rec.Inode, err})
				return len(batch) < walkBatch, nil
			})
		})
		if err != nil {
			return err
		}
		for i := range batch {
			if err := fn(batch[i].in, batch[i].err); err != nil {
				return err
			}
		}
		if len(batch) < walkBatch {
			return nil
		}
		next = batch[len(batch)-1].in.Ino + 1
	}
}
