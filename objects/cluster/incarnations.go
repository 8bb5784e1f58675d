package cluster

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// The inode number in a Mesh of another node's inode:
//
//	1<<60 | index of the node's incarnation << 44 | the owner's number
const (
	otherBit   objects.Ino = 1 << 60
	otherEnd   objects.Ino = 1 << 61
	indexShift             = 44
	// maxIncarnations bounds the number of incarnations that have an index at one time.
	maxIncarnations = 1 << 16
)

// NodesIno is the number of the directory of a mount that lists the other nodes. The store
// assigns no numbers below metadata.FirstIno.
const NodesIno objects.Ino = 8

// OfAnotherNode reports whether an inode number of a Mesh belongs to another node.
func OfAnotherNode(ino objects.Ino) bool { return ino >= otherBit && ino < otherEnd }

// incarnation is an incarnation of another node whose inodes the kernel may know.
type incarnation struct {
	*Node
	index objects.Ino
	// gen is random, so that a file handle of another mount, or of an incarnation that
	// had the index before, is known to be stale.
	gen metadata.Generation
	// refs is the total number of references to its inodes.
	refs atomic.Int64
	// kept has it for the next daemon, and recorded is the epoch that it has there, plus one.
	kept     *keptIncarnations
	recorded atomic.Uint64
}

// number converts an inode number of that node to the one in the Mesh.
func (n *incarnation) number(ino objects.Ino) objects.Ino {
	return otherBit | n.index<<indexShift | ino
}

// place is an inode of another node.
type place struct {
	*incarnation
	ino objects.Ino // the owner's number
}

// isTop reports whether it is the directory of the node itself, which cannot be changed.
func (p place) isTop() bool { return p.ino == metadata.RootIno }

// incarnations holds the incarnations of other nodes that have been seen, by their indices. An
// index is reused once its incarnation is gone and no inode of it is referenced.
type incarnations struct {
	mu sync.RWMutex
	// +checklocks:mu
	byIndex map[objects.Ino]*incarnation
	// +checklocks:mu
	byNode map[*Node]*incarnation
	// last is the index that was assigned last.
	// +checklocks:mu
	last objects.Ino
	// kept has them for the next daemon; nil if there is to be none. It is set before the first use.
	kept *keptIncarnations
}

// of returns the incarnation for a Node.
//
// Errors: ENFILE.
func (all *incarnations) of(n *Node) (*incarnation, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if known := all.byNode[n]; known != nil {
		return known, nil
	}
	return all.addLocked(n)
}

// +checklocks:all.mu
func (all *incarnations) addLocked(n *Node) (*incarnation, error) {
	if all.byNode == nil {
		all.byNode, all.byIndex = map[*Node]*incarnation{}, map[objects.Ino]*incarnation{}
	}
	for _, old := range all.byIndex {
		if old.refs.Load() <= 0 && old.Gone() {
			delete(all.byIndex, old.index)
			delete(all.byNode, old.Node)
		}
	}
	if len(all.byIndex) == maxIncarnations {
		return nil, fmt.Errorf("more than %d incarnations of nodes in use: %w", maxIncarnations, syscall.ENFILE)
	}
	for {
		all.last = (all.last + 1) % maxIncarnations
		if all.byIndex[all.last] == nil {
			break
		}
	}
	known := &incarnation{Node: n, index: all.last, gen: metadata.Generation(rand.Uint32()), kept: all.kept}
	if err := known.keep(); err != nil {
		return nil, err
	}
	all.byIndex[known.index], all.byNode[n] = known, known
	return known, nil
}

// find returns the incarnation and the inode for a number.
//
// Errors: ErrStale.
func (all *incarnations) find(ino objects.Ino) (place, error) {
	all.mu.RLock()
	n := all.byIndex[(ino&^otherBit)>>indexShift]
	all.mu.RUnlock()
	if n == nil {
		return place{}, fmt.Errorf("inode %#x belongs to an unknown node: %w", uint64(ino), ErrStale)
	}
	return place{incarnation: n, ino: ino & (MaxInos - 1)}, nil
}

// refer adds refs to the count of references.
func (all *incarnations) refer(ino objects.Ino, refs int64) {
	if p, err := all.find(ino); err == nil {
		p.refs.Add(refs)
	}
}

// keepOther bounds how long a cache may answer with names and attributes of other nodes, of
// whose changes it is not notified: long enough for consecutive calls of one program about a
// file. Anything kept longer is cached by Node, which is notified.
const keepOther = 20 * time.Millisecond

// adopt converts the inode numbers in the result of a request, the attributes or an error, to those
// of the Mesh.
//
// Errors: ErrVersion for numbers that no owner assigns; those of the kept incarnations.
func (n *incarnation) adopt(a objects.Attr, err error) (objects.Attr, error) {
	if err != nil {
		return objects.Attr{}, err
	}
	if err = n.keep(); err != nil { // an answer tells its epoch
		return objects.Attr{}, err
	}
	if a.Ino == 0 || a.Ino >= MaxInos {
		return objects.Attr{}, fmt.Errorf("another node sent the invalid inode number %#x: %w", uint64(a.Ino), ErrVersion)
	}
	a.Ino = n.number(a.Ino)
	if a.Parent > 0 && a.Parent < MaxInos {
		a.Parent = n.number(a.Parent)
	} else {
		a.Parent = 0
	}
	a.Gen = n.gen
	a.Keep, a.KeepName = keepOther, keepOther
	return a, nil
}
