package fs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// nodesLister lists nodes/ as it was when the listing began. It asks no node.
type nodesLister struct {
	fs   *filesystem
	seen []dirEntry
}

// list is a lister. It is called with the lock of its directory's handle.
func (l *nodesLister) list(after uint64, limit int) ([]dirEntry, error) {
	if after == dotsEnd {
		l.seen = l.seen[:0]
		for _, s := range l.fs.opts.Cluster.Nodes() {
			ino, ok := l.fs.nodeIno(s.Name)
			if !ok {
				continue // it has gone meanwhile
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

// nodeIno is the number of nodes/NAME.
func (f *filesystem) nodeIno(name members.Name) (metadata.Ino, bool) {
	node, err := f.opts.Cluster.Node(name)
	if err != nil {
		return 0, false
	}
	n, err := f.remotes.of(node, 0)
	if err != nil {
		return 0, false
	}
	return n.number(metadata.RootIno), true
}

// newRemoteDir makes the handle of a directory of another node, which is read
// as whoever has opened it. It asks for the first entries at once: the kernel
// looks a name up anew on which opening says ESTALE, as after another
// incarnation has come, and does not on which reading says so.
func (f *filesystem) newRemoteDir(cancel <-chan struct{}, c *fuse.Caller, ino metadata.Ino) (*dirHandle, error) {
	p, err := f.remotes.find(ino)
	if err != nil {
		return nil, err
	}
	parent := nodesIno
	if !p.isTop() {
		// The kernel has just asked for the attributes, so the node need not be.
		a, status := f.askAttr(cancel, c, ino)
		if parent = a.Parent; status != fuse.OK || parent == 0 {
			parent = ino
		}
	}
	l := &remoteLister{place: p, dir: p.OpenDir(f.creds.of(c), p.ino)}
	ctx, release := untilKilled(cancel, c.Pid)
	defer release()
	if l.first, err = l.dir.After(ctx, 0); err != nil {
		return nil, err
	}
	return &dirHandle{
		ino: ino, ask: l.list,
		dots: func() []dirEntry { return dotsOf(ino, parent) },
	}, nil
}

// remoteLister lists a directory of another node. It leaves out what has no
// number here.
type remoteLister struct {
	place
	dir *cluster.Dir
	// first are the entries that opening has brought, until they are listed.
	first []cluster.Entry
}

// list is a lister. It is called with the lock of its directory's handle, which
// is how the directory is read by one at a time. One that has been removed
// while it is open has no entries.
func (l *remoteLister) list(ctx context.Context, after uint64, _ int) ([]dirEntry, error) {
	cookie := metadata.Cookie(after)
	if after <= lastReserved {
		cookie = 0
	}
	for {
		found, err := l.after(ctx, cookie)
		if isMissing(err) {
			return nil, nil
		}
		if err != nil || len(found) == 0 {
			return nil, err
		}
		entries := make([]dirEntry, 0, len(found))
		for i := range found {
			e := &found[i].Entry
			if cookie = e.Cookie; e.Ino == 0 || e.Ino >= remoteInos || cookie <= lastReserved {
				continue
			}
			entries = append(entries, dirEntry{name: e.Name, ino: l.number(e.Ino), mode: e.Type, offset: uint64(cookie)})
		}
		if len(entries) > 0 {
			return entries, nil
		}
	}
}

func (l *remoteLister) after(ctx context.Context, cookie metadata.Cookie) ([]cluster.Entry, error) {
	first := l.first
	if l.first = nil; cookie == 0 && len(first) > 0 {
		return first, nil
	}
	return l.dir.After(ctx, cookie)
}
