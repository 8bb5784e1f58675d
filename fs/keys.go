package fs

import (
	"context"
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// keysDir is keys/, which contains a symlink for each key.
type keysDir struct{ base }

func (d keysDir) attr() (objects.Attr, error) { return d.attrAs(metadata.TypeDir|0o555, 2, 0) }

func (d keysDir) lookup(name string, out *fuse.EntryOut) (done bool, status fuse.Status) {
	if len(name) > metadata.MaxName {
		return true, errNameTooLong
	}
	f := d.fs
	e, err := f.store.Key(background(), name)
	switch {
	case errors.Is(err, metadata.ErrInvalidKey):
		return true, fuse.ENOENT // no object can have such a key
	case isMissing(err):
		if ino := f.views.ofKey(background(), name); ino != 0 {
			return true, f.answer(keysIno, f.provided(ino), out)
		}
		return true, f.otherKeys.lookup(name, out)
	case err != nil:
		return true, f.errs.status(err)
	case e.Part != "":
		return true, f.otherKeys.lookup(name, out)
	}
	return true, f.answer(keysIno, f.provided(e.Ino|keyBit), out)
}

// list lists keys from a key on, but the kernel resumes at a number, so the lister remembers
// the names in the order in which it has listed them: offset dotsEnd+i is after the i-th one.
// It is called with the lock of its directory's handle held.
func (d keysDir) list(_ <-chan struct{}, _ *fuse.InHeader, h *dirHandle) (lister, error) {
	h.waits = d.fs.opts.Cluster != nil
	type listed struct {
		key  string
		view bool // the name is that of the key's view
	}
	var seen []listed
	next := func(ctx context.Context, limit int) ([]dirEntry, error) {
		var last listed
		if n := len(seen); n > 0 {
			last = seen[n-1]
		}
		keys, err := d.fs.otherKeys.listBehind(ctx, last.key, limit)
		if err != nil {
			return nil, err
		}
		var entries []dirEntry
		add := func(e dirEntry, key string, view bool) {
			seen = append(seen, listed{key, view})
			e.offset = dotsEnd + uint64(len(seen))
			entries = append(entries, e)
		}
		if view, ok := d.listedView(ctx, last.key); ok && !last.view {
			add(view, last.key, true)
		}
		for _, e := range keys {
			add(e, e.name, false)
			if view, ok := d.listedView(ctx, e.name); ok {
				add(view, e.name, true)
			}
		}
		return entries, nil
	}
	return func(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
		known := after - dotsEnd
		for uint64(len(seen)) < known { // an earlier process has listed them
			if more, err := next(ctx, limit); err != nil || len(more) == 0 {
				return nil, err
			}
		}
		seen = seen[:known]
		return next(ctx, limit)
	}, nil
}

// listedView returns the entry KEY.tensors of a key, if it exists and views are listed.
func (d keysDir) listedView(ctx context.Context, key string) (dirEntry, bool) {
	name := key + tensors.ViewSuffix
	if !d.fs.opts.ListViews || len(name) > metadata.MaxName {
		return dirEntry{}, false
	}
	if _, err := d.fs.store.Key(ctx, name); err == nil {
		return dirEntry{}, false // a key of that name is listed itself
	}
	ino := d.fs.views.ofKey(ctx, name)
	return dirEntry{name: name, ino: ino, mode: metadata.TypeSymlink}, ino != 0
}

// keyLink is the symlink for the key of an object of this node, or that to the tensors of
// the object. It exists as long as the object has a key.
type keyLink struct{ base }

func (l keyLink) attr() (objects.Attr, error) {
	store := l.fs.store
	a, err := store.Attr(background(), l.ino&^(keyBit|keyViewBit))
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
	if l.ino&keyViewBit != 0 {
		if !l.fs.views.hasView(background(), l.ino&^(keyBit|keyViewBit)) {
			return objects.Attr{}, metadata.ErrNotExist
		}
		a.Target += tensors.ViewSuffix
	}
	return a, nil
}

func (l keyLink) parent() metadata.Ino { return keysIno }
