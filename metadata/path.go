package metadata

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// maxDepth bounds the walk from a directory to the root, in case the records form a circle.
const maxDepth = 1 << 20

// PathOf returns the path of an inode's primary link, relative to the root and without a
// leading slash, for example "sim0/a/b"; empty for the root.
//
// Errors: ErrNotExist.
func (s *Store) PathOf(ctx context.Context, ino Ino) (string, error) {
	var names []string
	err := s.view(ctx, func(t *txn) error {
		for at := ino; at != RootIno; {
			rec, err := t.inode(at)
			if err != nil {
				return err
			}
			if names = append(names, rec.Name); len(names) > maxDepth {
				return fmt.Errorf("%w: inode %d is not under the root", ErrCorrupt, ino)
			}
			at = rec.Parent
		}
		return nil
	})
	slices.Reverse(names)
	return strings.Join(names, "/"), err
}

// outside checks that a directory is neither rec nor inside of it. Each directory on the
// path to the root is read in this transaction, so no concurrent rename can make the result
// wrong.
func (t *txn) outside(rec *record, dir Ino) error {
	if !rec.IsDir() {
		return nil
	}
	for depth := 0; dir != RootIno; depth++ {
		if dir == rec.Ino {
			return fmt.Errorf("%w: directory would move into itself", ErrInvalid)
		}
		if depth > maxDepth {
			return fmt.Errorf("%w: directory %d is not under the root", ErrCorrupt, dir)
		}
		up, err := t.inode(dir)
		if err != nil {
			return err
		}
		dir = up.Parent
	}
	return nil
}
