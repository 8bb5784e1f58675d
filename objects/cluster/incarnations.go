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

// The number of another node's inode in a Mesh:
//
//	1<<60 | index of the node's incarnation << 44 | the owner's number
const (
	otherBit   objects.Ino = 1 << 60
	otherEnd   objects.Ino = 1 << 61
	indexShift             = 44
	// maxIncarnations bounds the incarnations that have an index at a time.
	maxIncarnations = 1 << 16
)

// NodesIno is the number of the directory of a mount that lists the other nodes. The store
// gives none below metadata.FirstIno.
const NodesIno objects.Ino = 8

// OfAnotherNode reports whether a number of a Mesh is that of another node's inode.
func OfAnotherNode(ino objects.Ino) bool { return ino >= otherBit && ino < otherEnd }

// incarnation is one of another node, of which the kernel may know inodes.
type incarnation struct {
	*Node
	index objects.Ino
	// gen is random, so that a file handle of another mount, or of an incarnation that
	// had the index before, is known to be stale.
	gen metadata.Generation
	// refs are the references to all of its inodes together.
	refs atomic.Int64
}

// number converts an inode's number there to the one here.
func (n *incarnation) number(ino objects.Ino) objects.Ino {
	return otherBit | n.index<<indexShift | ino
}

// place is an inode of another node.
type place struct {
	*incarnation
	ino objects.Ino // the owner's number
}

// isTop reports whether it is the directory of the node itself, which nobody changes.
func (p place) isTop() bool { return p.ino == metadata.RootIno }

// incarnations are those of other nodes that have been seen, by their indices. An index
// is given again when its incarnation is gone and nothing refers to an inode of it.
type incarnations struct {
	mu sync.RWMutex
	// +checklocks:mu
	byIndex map[objects.Ino]*incarnation
	// +checklocks:mu
	byNode map[*Node]*incarnation
	// last is the index that was given last.
	// +checklocks:mu
	last objects.Ino
}

// of returns the incarnation that a Node stands for, with refs more references.
//
// Errors: ENFILE.
func (all *incarnations) of(n *Node, refs int64) (*incarnation, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	known := all.byNode[n]
	if known == nil {
		var err error
		if known, err = all.addLocked(n); err != nil {
			return nil, err
		}
	}
	known.refs.Add(refs)
	return known, nil
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
	known := &incarnation{Node: n, index: all.last, gen: metadata.Generation(rand.Uint32())}
	all.byIndex[known.index], all.byNode[n] = known, known
	return known, nil
}

// find resolves a number.
//
// Errors: ErrStale.
func (all *incarnations) find(ino objects.Ino) (place, error) {
	all.mu.RLock()
	n := all.byIndex[(ino&^otherBit)>>indexShift]
	all.mu.RUnlock()
	if n == nil {
		return place{}, fmt.Errorf("inode %#x of a node that is not known: %w", uint64(ino), ErrStale)
	}
	return place{incarnation: n, ino: ino & (MaxInos - 1)}, nil
}

// refer changes the count of references.
func (all *incarnations) refer(ino objects.Ino, refs int64) {
	if p, err := all.find(ino); err == nil {
		p.refs.Add(refs)
	}
}

// keepOther bounds how long a cache may answer with names and attributes of other nodes,
// whose changes it is not told: as long as one program may take from one call about a
// file to the next. What else may be remembered is for Node, which is told.
const keepOther = 20 * time.Millisecond

// adopt gives attributes that an owner has answered their numbers here.
//
// Errors: ErrVersion for numbers that no owner gives.
func (n *incarnation) adopt(a objects.Attr) (objects.Attr, error) {
	if a.Ino == 0 || a.Ino >= MaxInos {
		return objects.Attr{}, fmt.Errorf("another node has an inode %#x: %w", uint64(a.Ino), ErrVersion)
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
