package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// namedFile resolves a path from the root of the mount, through directories that the caller
// may search, as the kernel does.
func (d *Daemon) namedFile(ctx context.Context, by objects.Caller, path string) (metadata.Ino, error) {
	rest := path
	if filepath.IsAbs(path) {
		var inside bool
		if rest, inside = strings.CutPrefix(filepath.Clean(path), d.opts.Places.MountPoint+"/"); !inside {
			return 0, fmt.Errorf("%s is not below %s: %w", path, d.opts.Places.MountPoint, objects.ErrInvalid)
		}
	}
	at, err := d.store.Attr(ctx, metadata.RootIno)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	for name := range strings.SplitSeq(filepath.Clean(rest), "/") {
		if at.IsDir() && !by.May(&at.Inode, objects.PermExec) {
			return 0, fmt.Errorf("%s: %w", path, objects.Unsearchable(by, &at.Inode))
		}
		if at, err = d.store.Lookup(ctx, at.Ino, name); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return at.Ino, nil
}

// mayReach returns an error unless the caller could have reached a file, named by its
// number, through its path: that requires the permission to search the directories. For a
// file of another node, or one reached by another name, the caller must pass a descriptor.
func (d *Daemon) mayReach(ctx context.Context, by objects.Caller, ino metadata.Ino) error {
	if by.UID == 0 {
		return nil
	}
	node, _, err := d.tree.Locate(ino)
	if err != nil {
		return err
	}
	if node != nil {
		return fmt.Errorf("inode %d is a file of node %s; user %d must name it by a descriptor: %w",
			ino, node.Record().Name, by.UID, objects.ErrForbidden)
	}
	return d.store.MayReach(ctx, by, ino)
}
