package fs

import (
	"context"
	"path"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// above returns the directory of a path in a view.
func above(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

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
	views := &v.fs.views
	var n *viewNode
	read := func(ctx context.Context) (found []tensors.Entry, err error) {
		if n, err = views.get(v.ino); err != nil {
			return nil, err
		}
		f, err := views.tensors(ctx, n)
		if err != nil {
			return nil, err
		}
		return f.List(n.path), nil
	}
	return listSnapshot(read, func(e tensors.Entry) dirEntry {
		mode := metadata.TypeRegular
		if e.Tensor == nil {
			mode = metadata.TypeDir
		}
		return dirEntry{name: e.Name, mode: mode, ino: views.number(n.file, n.name, path.Join(n.path, e.Name), e.Tensor)}
	}), nil
}
