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

func (d nodesDir) list(<-chan struct{}, *fuse.InHeader, *dirHandle) (lister, error) {
	return (&nodesLister{fs: d.fs}).list, nil
}

// nodesLister lists nodes/ as of the start of the listing. It sends no request to a node.
type nodesLister struct {
	fs   *filesystem
	seen []dirEntry
}

// list is a lister. It is called with the lock of its directory's handle held.
func (l *nodesLister) list(_ context.Context, after uint64, limit int) ([]dirEntry, error) {
	if after == dotsEnd {
		l.seen = l.seen[:0]
		for _, s := range l.fs.opts.Cluster.Nodes() {
			ino, err := l.fs.tree.NodeIno(s.Name)
			if err != nil {
				continue // the node has left in the meantime
			}
			l.seen = append(l.seen, dirEntry{
				name: string(s.Name), ino: ino, mode: metadata.TypeDir,
				offset: dotsEnd + uint64(len(l.seen)) + 1,
			})
		}
	}
	from := min(after-dotsEnd, uint64(len(l.seen)))
	return l.seen[from:min(from+uint64(limit), uint64(len(l.seen)))], nil
}
