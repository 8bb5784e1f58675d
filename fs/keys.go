package fs

import (
	"context"
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// keysDir is keys/, which contains a symlink for each key.
type keysDir struct{ base }

func (d keysDir) attr() (objects.Attr, error) { return d.attrAs(metadata.TypeDir|0o555, 2, 0) }

func (d keysDir) lookup(name string, out *fuse.EntryOut) (done bool, status fuse.Status) {
	if len(name) > metadata.MaxName {
		return true, errNameTooLong
	}
	f := d.fs
	ino, err := f.store.KeyIno(background(), name)
	switch {
	case errors.Is(err, metadata.ErrInvalidKey):
		return true, fuse.ENOENT // no object can have such a key
	case isMissing(err) && f.opts.Cluster != nil:
		return true, f.otherKeys.lookup(name, out)
	case err != nil:
		return true, f.errs.status(err)
	}
	return true, f.answer(keysIno, f.provided(ino|keyBit), out)
}

// list lists keys from a key on, but the kernel resumes at a number, so the lister remembers
// the keys in the order in which it has listed them: offset dotsEnd+i is after the i-th key.
// It is called with the lock of its directory's handle held.
func (d keysDir) list(_ <-chan struct{}, _ *fuse.InHeader, h *dirHandle) (lister, error) {
	h.waits = d.fs.opts.Cluster != nil
	var seen []string
	return func(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
		known := min(after-dotsEnd, uint64(len(seen)))
		last := ""
		if known > 0 {
			last = seen[known-1]
		}
		entries, err := d.fs.otherKeys.listBehind(ctx, last, limit)
		if err != nil {
			return nil, err
		}
		seen = seen[:known]
		for i := range entries {
			seen = append(seen, entries[i].name)
			entries[i].offset = dotsEnd + uint64(len(seen))
		}
		return entries, nil
	}, nil
}

// keyLink is the symlink for the key of an object of this node. It exists as long as the
// object has a key.
type keyLink struct{ base }

func (l keyLink) attr() (objects.Attr, error) {
	store := l.fs.store
	a, err := store.Attr(background(), l.ino&^keyBit)
	if err != nil {
		return objects.Attr{}, err
	}
	if a.Key == "" {
		return objects.Attr{}, metadata.ErrNotExist
	}
	path, err := store.KeyPath(background(), a.Key)
	if err != nil {
		return objects.Attr{}, err
	}
	a.Ino = l.ino
	a.Mode = metadata.TypeSymlink | 0o777
	a.Nlink = 1
	a.Allocated = 0
	a.Target = "../" + strings.TrimPrefix(path, "/")
	return a, nil
}

func (l keyLink) parent() metadata.Ino { return keysIno }
