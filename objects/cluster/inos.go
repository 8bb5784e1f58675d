package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/objects"
)

// inos holds the files of a node that are open on this node.
type inos struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[objects.Ino]*opened
}

// opened is shared by all handles of one file.
type opened struct {
	// uses counts the handles; guarded by inos.mu.
	uses int
	// size is the file's size as last reported.
	size atomic.Uint64

	mu sync.Mutex
	// order is the owner's order of size: an answer that a later one has overtaken does not
	// set the size.
	// +checklocks:mu
	order uint64
	// version counts the known changes.
	version atomic.Uint64
	// owners is the owner's version as last reported, plus one; 0 means none.
	owners atomic.Uint64
}

// read records the owner's version that came with bytes. A change takes effect here before
// those bytes are used: older bytes must not be used together with them, although the notice
// of the change may still be in transit.
func (o *opened) read(version uint64) {
	was := o.owners.Swap(version + 1)
	if changing := version%2 == 1; changing || was != 0 && was != version+1 {
		o.version.Add(1)
	}
}

// sized sets the size from an answer of an order.
func (o *opened) sized(size, order uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if order >= o.order {
		o.order = order
		o.size.Store(size)
	}
}

// use adds a handle of a file.
func (s *inos) use(ino objects.Ino) *opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[objects.Ino]*opened{}
	}
	o := s.open[ino]
	if o == nil {
		o = &opened{}
		s.open[ino] = o
	}
	o.uses++
	return o
}

// leave removes a handle of a file.
func (s *inos) leave(ino objects.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[ino]
	if o.uses--; o.uses == 0 {
		delete(s.open, ino)
	}
}

// noteSize updates a file from attributes that the node has sent.
func (s *inos) noteSize(a *objects.Attr, order uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.open[a.Ino]; o != nil {
		o.sized(a.Size, order)
	}
}

// changed increments the versions of the files that an invalidation covers.
func (s *inos) changed(what Invalidation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what.All {
		for _, o := range s.open {
			o.version.Add(1)
		}
		return
	}
	for _, ino := range what.Inos {
		if o := s.open[ino]; o != nil {
			o.version.Add(1)
		}
	}
}
