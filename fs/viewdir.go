package fs

import (
	"context"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// below and above compute paths in a view.

func below(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func above(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// viewLister lists a directory of a view as of the start of the listing.
type viewLister struct {
	views *views
	id    metadata.Ino
	found []tensors.Entry
	node  *viewNode
}

// list is a lister. It is called with the lock of its directory's handle held.
func (l *viewLister) list(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
	if after == dotsEnd || l.node == nil {
		n, err := l.views.get(l.id)
		if err != nil {
			return nil, err
		}
		f, err := l.views.tensors(ctx, n)
		if err != nil {
			return nil, err
		}
		l.node, l.found = n, f.List(n.path)
	}
	from := min(after-dotsEnd, uint64(len(l.found)))
	part := l.found[from:min(from+uint64(limit), uint64(len(l.found)))]
	entries := make([]dirEntry, len(part))
	for i, e := range part {
		mode := metadata.TypeRegular
		if e.Tensor == nil {
			mode = metadata.TypeDir
		}
		entries[i] = dirEntry{
			name: e.Name, mode: mode, offset: dotsEnd + from + uint64(i) + 1,
			ino: l.views.number(l.node.file, l.node.name, below(l.node.path, e.Name), e.Tensor),
		}
	}
	return entries, nil
}

func (v viewInode) parent() metadata.Ino {
	f := v.fs
	n, err := f.views.get(v.ino)
	if err != nil {
		return metadata.RootIno
	}
	if n.path != "" {
		return f.views.number(n.file, n.name, above(n.path), nil)
	}
	a, err := f.store.Attr(background(), n.file)
	if err != nil || a.Parent == 0 {
		return metadata.RootIno
	}
	return a.Parent
}

func (v viewInode) list(<-chan struct{}, *fuse.InHeader, *dirHandle) (lister, error) {
	return (&viewLister{views: &v.fs.views, id: v.ino}).list, nil
}
