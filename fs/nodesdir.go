package fs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
)

// nodesDir is nodes/, which contains a directory of the tree for each other node.
type nodesDir struct{ base }

func (d nodesDir) attr() (objects.Attr, error) {
	return d.attrAs(metadata.TypeDir|0o555, 2+uint32(len(d.fs.opts.Cluster.Nodes())), 0)
}

func (d nodesDir) lookup(name string, out *fuse.EntryOut) (done bool, status fuse.Status) {
	if len(name) > metadata.MaxName {
		return true, errNameTooLong
	}
	a, err := d.fs.tree.NodeAttr(background(), members.Name(name))
	if err != nil {
		return true, d.fs.errs.status(err)
	}
	return true, d.fs.enter(nodesIno, out, &a)
}

// list lists the nodes without a request to any of them.
func (d nodesDir) list(<-chan struct{}, *fuse.InHeader, *dirHandle) (lister, error) {
	read := func(context.Context) ([]dirEntry, error) {
		var found []dirEntry
		for _, s := range d.fs.opts.Cluster.Nodes() {
			ino, err := d.fs.tree.NodeIno(s.Name)
			if err != nil {
				continue // the node has left in the meantime
			}
			found = append(found, dirEntry{name: string(s.Name), ino: ino, mode: metadata.TypeDir})
		}
		return found, nil
	}
	return listSnapshot(read, func(e dirEntry) dirEntry { return e }), nil
}
