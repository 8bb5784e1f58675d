package fs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// rootDir is the root, which also lists the directories of devices from the tree.
type rootDir struct{ base }

// entries returns the entries other than devices. nodes/ exists only with a cluster.
func (r rootDir) entries() []dirEntry {
	all := []dirEntry{
		{name: controlName, ino: controlIno, mode: metadata.TypeDir, offset: dotsEnd + 1},
		{name: keysName, ino: keysIno, mode: metadata.TypeDir, offset: dotsEnd + 2},
		{name: publishName, ino: metadata.PublishIno, mode: metadata.TypeDir, offset: dotsEnd + 3},
		{name: nodesName, ino: nodesIno, mode: metadata.TypeDir, offset: dotsEnd + 4},
	}
	if r.fs.opts.Cluster == nil {
		all = all[:len(all)-1]
	}
	return all
}

func (r rootDir) attr() (objects.Attr, error) {
	a, err := r.fs.store.Attr(background(), metadata.RootIno)
	a.Nlink += uint32(len(r.entries()))
	return a, err
}

func (r rootDir) lookup(name string, out *fuse.EntryOut) (done bool, status fuse.Status) {
	f := r.fs
	for _, e := range r.entries() {
		if e.name != name {
			continue
		}
		if n := f.provided(e.ino); n != nil {
			return true, f.answer(metadata.RootIno, n, out)
		}
		a, err := f.store.Attr(background(), e.ino) // publish/
		if err != nil {
			return true, f.errs.status(err)
		}
		return true, f.enter(metadata.RootIno, out, &a)
	}
	return false, fuse.OK
}

func (r rootDir) list(cancel <-chan struct{}, header *fuse.InHeader, h *dirHandle) (lister, error) {
	devices, err := r.fs.listInTree(cancel, header, h)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
		own, err := listFixed(r.entries())(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		rest, err := devices(ctx, after, limit)
		return append(own, rest...), err
	}, nil
}
