package fs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// The parts of the number of another node's inode.
const (
	// remoteShift is where the incarnation's index begins.
	remoteShift = 44
	// remoteInos are the numbers that an owner can have given.
	remoteInos = cluster.MaxInos
	// maxRemotes is how many incarnations have an index at a time.
	maxRemotes = 1 << 16
)

// isRemote says that an inode is another node's: of nodes/NODE or below.
func isRemote(ino metadata.Ino) bool { return ino >= remoteBit && ino < viewBit }

// remoteNode is an incarnation of another node of which the kernel may know
// inodes.
type remoteNode struct {
	*cluster.Node
	index metadata.Ino
	// gen is drawn, so that a file handle of another mount, or of an
	// incarnation that had the index before, is known to be stale.
	gen uint32
	// refs are the kernel's references to all of its inodes together.
	refs atomic.Int64
}

// number is the number here of an inode there.
func (n *remoteNode) number(ino metadata.Ino) metadata.Ino {
	return remoteBit | n.index<<remoteShift | ino
}

// place is an inode of another node.
type place struct {
	*remoteNode
	ino metadata.Ino // the owner's number
}

// isTop says that it is nodes/NODE itself, which nobody changes.
func (p place) isTop() bool { return p.ino == metadata.RootIno }

// remotes are the incarnations of other nodes that have been seen, by their
// indices, which are given again when an incarnation is gone and the kernel
// has forgotten all inodes of it.
type remotes struct {
	mu sync.RWMutex
	// +checklocks:mu
	byIndex map[metadata.Ino]*remoteNode
	// +checklocks:mu
	byNode map[*cluster.Node]*remoteNode
	// last is the index that was given last.
	// +checklocks:mu
	last metadata.Ino
}

// of returns what stands for a node, with so many references more.
//
// Errors: ENFILE.
func (r *remotes) of(n *cluster.Node, refs int64) (*remoteNode, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byNode[n]
	if known == nil {
		var err error
		if known, err = r.addLocked(n); err != nil {
			return nil, err
		}
	}
	known.refs.Add(refs)
	return known, nil
}

// +checklocks:r.mu
func (r *remotes) addLocked(n *cluster.Node) (*remoteNode, error) {
	if r.byNode == nil {
		r.byNode, r.byIndex = map[*cluster.Node]*remoteNode{}, map[metadata.Ino]*remoteNode{}
	}
	for _, old := range r.byIndex {
		if old.refs.Load() <= 0 && old.Gone() {
			delete(r.byIndex, old.index)
			delete(r.byNode, old.Node)
		}
	}
	if len(r.byIndex) == maxRemotes {
		return nil, fmt.Errorf("more than %d incarnations of nodes in use: %w", maxRemotes, syscall.ENFILE)
	}
	for {
		r.last = (r.last + 1) % maxRemotes
		if r.byIndex[r.last] == nil {
			break
		}
	}
	known := &remoteNode{Node: n, index: r.last, gen: rand.Uint32()}
	r.byIndex[known.index], r.byNode[n] = known, known
	return known, nil
}

// find returns what an inode's number means.
//
// Errors: cluster.ErrStale.
func (r *remotes) find(ino metadata.Ino) (place, error) {
	r.mu.RLock()
	n := r.byIndex[(ino&^remoteBit)>>remoteShift]
	r.mu.RUnlock()
	if n == nil {
		return place{}, fmt.Errorf("inode %#x of a node that is not known: %w", uint64(ino), cluster.ErrStale)
	}
	return place{remoteNode: n, ino: ino & (remoteInos - 1)}, nil
}

// forget drops references of the kernel's.
func (r *remotes) forget(ino metadata.Ino, refs uint64) {
	if p, err := r.find(ino); err == nil {
		p.refs.Add(-int64(refs))
	}
}

// adopt gives what an owner has answered the numbers that it has here.
//
// Errors: cluster.ErrVersion for numbers that no owner gives.
func (n *remoteNode) adopt(a *objects.Attr) error {
	if a.Ino == 0 || a.Ino >= remoteInos {
		return fmt.Errorf("another node has an inode %#x: %w", uint64(a.Ino), cluster.ErrVersion)
	}
	a.Ino = n.number(a.Ino)
	if a.Parent > 0 && a.Parent < remoteInos {
		a.Parent = n.number(a.Parent)
	} else {
		a.Parent = 0
	}
	a.Gen = metadata.Generation(n.gen)
	return nil
}

// topAttr makes the attributes of nodes/NODE, without asking the node.
//
// Errors: cluster.ErrStale.
func (f *filesystem) topAttr(ctx context.Context, n *remoteNode) (objects.Attr, error) {
	r := n.Record()
	if n.Gone() {
		return objects.Attr{}, fmt.Errorf("node %s: %w", r.Name, cluster.ErrStale)
	}
	root, err := f.store.Attr(ctx, metadata.RootIno)
	if err != nil {
		return objects.Attr{}, err
	}
	return objects.Attr{State: objects.StateLive, Inode: metadata.Inode{
		Ino: n.number(metadata.RootIno), Gen: metadata.Generation(n.gen),
		Mode: metadata.TypeDir | 0o555, Nlink: 2 + uint32(len(r.Devices)),
		UID: root.UID, GID: root.GID, Parent: nodesIno,
		Atime: f.born, Mtime: f.born, Ctime: f.born, Btime: f.born,
	}}, nil
}

// keepRemote is how long the kernel keeps names and attributes of other nodes,
// which it could not be told to drop: as long as one program may take from one
// call about a file to the next. What else may be remembered, objects/cluster
// knows, which hears of changes.
const keepRemote = 20 * time.Millisecond

// keepRemoteAttr returns how long the kernel may keep attributes of another
// node's file: keepRemote, or not at all with a set-ID bit.
func keepRemoteAttr(a *objects.Attr) time.Duration {
	if hasSetID(a) {
		return 0
	}
	return keepRemote
}

// fillRemote answers an inode of another node by a name.
func fillRemote(out *fuse.EntryOut, a *objects.Attr) {
	fillAttr(&out.Attr, a)
	out.NodeId = uint64(a.Ino)
	out.Generation = uint64(a.Gen)
	out.SetAttrTimeout(keepRemoteAttr(a))
	out.SetEntryTimeout(keepRemote)
}

// fillTop answers nodes/NODE. As long as the kernel keeps it, it may name an
// incarnation that has gone, which then is ESTALE, and looked up anew.
func (f *filesystem) fillTop(out *fuse.EntryOut, a *objects.Attr) {
	fillRemote(out, a)
	out.SetAttrTimeout(f.timeout)
	out.SetEntryTimeout(f.timeout)
}

// inodeStatus is the answer to a question about an inode that ended with err.
// Its name was found a moment ago, so that the inode is gone means that the
// name is another's now, and ESTALE makes the kernel look it up again.
func (f *filesystem) inodeStatus(err error) fuse.Status {
	if isMissing(err) {
		return errStale
	}
	return f.errs.status(err)
}
