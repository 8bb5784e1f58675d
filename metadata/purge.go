package metadata

import (
	"context"
	"errors"

	"go.uber.org/zap"
)

// purgeBatch is the number of mappings or attributes of an inode that one transaction
// removes, so that it stays within the limits of every KV.
const purgeBatch = 2048

// leftover reports whether a removed inode has more records than one transaction removes.
func (s *Store) leftover(rec *record) bool {
	return rec.Nlink == 0 && rec.maps+uint64(rec.xattrs) > uint64(s.purgeBatch)
}

// purgeSoon removes the remaining records of a removed inode. If it fails, the removal of
// the inode has succeeded nevertheless: the next Open tries again, and nothing refers to
// these records meanwhile. It ignores the end of the context, since the operation proper is
// complete.
func (s *Store) purgeSoon(ctx context.Context, ino Ino) {
	if err := s.purge(context.WithoutCancel(ctx), ino); err != nil {
		s.log.Warn("cannot remove all records of a removed inode; the next start removes the rest",
			zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
}

// purge removes the records that a removed inode left, in steps. Held attributes are kept;
// ReleaseXattrs purges them.
func (s *Store) purge(ctx context.Context, ino Ino) error {
	for more := true; more; {
		err := s.update(ctx, func(t *txn) (err error) {
			more, err = t.purge(ino)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// purge is one step of Store.purge; it reports whether more are needed.
func (t *txn) purge(ino Ino) (more bool, err error) {
	left := t.s.purgeBatch
	held := t.isHeld(ino)
	kinds := []byte{kindXattr, kindMapping}
	if held {
		kinds = kinds[1:]
	}
	for _, kind := range kinds {
		if left == 0 {
			return true, nil
		}
		n, err := t.deleteUnder(t.key(kind, uint64(ino)), left)
		if err != nil {
			return false, err
		}
		left -= n
	}
	if left == 0 || held {
		return left == 0, nil
	}
	t.del(t.key(kindPurge, uint64(ino)))
	return false, nil
}

// purgeAll completes the removals that an earlier process announced.
func (s *Store) purgeAll(ctx context.Context) error {
	var keys [][]byte
	err := s.view(ctx, func(t *txn) (err error) {
		keys, err = t.keysUnder([]byte{kindPurge}, 0)
		return err
	})
	for _, key := range keys {
		var kept bool
		if err == nil && s.keepNameless {
			kept, err = holdAgain(ctx, s, keyIno(key))
		}
		if err == nil && !kept {
			err = s.purge(ctx, keyIno(key))
		}
	}
	return err
}

// holdAgain continues to hold an inode without names that an earlier process held.
func holdAgain(ctx context.Context, s *Store, ino Ino) (held bool, err error) {
	s.held.Store(ino, nil)
	rec, err := read(ctx, s, func(t *txn) (record, error) { return t.bearer(ino) })
	if err != nil {
		s.held.Delete(ino)
		if errors.Is(err, ErrNotExist) || errors.Is(err, ErrCorrupt) { // only a removal to complete
			err = nil
		}
		return false, err
	}
	if s.foundNameless == nil {
		s.foundNameless = map[Ino]Inode{}
	}
	s.foundNameless[ino] = rec.Inode
	return true, nil
}

// isHeld reports whether the attributes of an inode outlive its last name.
func (t *txn) isHeld(ino Ino) bool {
	_, ok := t.s.held.Load(ino)
	return ok
}
