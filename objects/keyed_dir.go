package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// keysDirName is the name of the directory, in a device's directory, of the objects
// that are made for keys.
const keysDirName = ".keys"

// keysDir returns the directory of a device's keyed objects, which is made with the
// first: users that may make files on the device may make them there.
//
// Errors: ErrForbidden for a directory that a user has made, which an earlier hmcfs
// allowed to users of other nodes.
func (ac *access) keysDir(ctx context.Context, t *content.Tier) (Ino, error) {
	in, err := ac.meta.Lookup(ctx, t.Root, keysDirName)
	there := err == nil && in.IsDir()
	if there && in.UID == 0 {
		return in.Ino, nil
	}
	root, err := ac.meta.Get(ctx, t.Root)
	if err != nil {
		return 0, fmt.Errorf("directory of keyed objects of %s: %w", t.Name, err)
	}
	if there {
		if in.UID != root.UID {
			return 0, fmt.Errorf("%s/%s belongs to user %d; remove it, or make it user %d's: %w",
				t.Name, keysDirName, in.UID, root.UID, ErrForbidden)
		}
		return in.Ino, nil
	}
	dir, err := ac.meta.EnsureDir(ctx, t.Root, keysDirName, metadata.Node{
		Mode: metadata.TypeDir | root.Mode.Perm(), UID: root.UID, GID: root.GID,
	})
	if err != nil {
		return 0, fmt.Errorf("directory of keyed objects of %s: %w", t.Name, err)
	}
	return dir.Ino, nil
}

// isKeysDir reports whether an inode is the directory of a device's keyed objects.
func (ac *access) isKeysDir(ctx context.Context, dir Ino) (bool, error) {
	in, err := ac.meta.Get(ctx, dir)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read directory %d: %w", dir, err)
	case in.Name != keysDirName || !in.IsDir():
		return false, nil
	}
	return slices.ContainsFunc(ac.tiers, func(t *content.Tier) bool { return t.Root == in.Parent }), nil
}

// keysDirFor returns the directory of a device's keyed objects for a user that is about
// to make some.
//
// Errors: ErrForbidden.
func (ac *access) keysDirFor(ctx context.Context, who Caller, t *content.Tier) (Ino, error) {
	dir, err := ac.keysDir(ctx, t)
	if err != nil {
		return 0, err
	}
	in, err := ac.meta.Get(ctx, dir)
	if err != nil {
		return 0, err
	}
	if !who.May(&in, PermWrite) {
		return 0, fmt.Errorf("user %d has no permission to create files in %s: %w", who.UID, t.Name, ErrForbidden)
	}
	return dir, nil
}
