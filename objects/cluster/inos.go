package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/objects"
)

// inos are the files of a node that are open here.
type inos struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[objects.Ino]*opened
}

// opened is shared by all handles of one file.
type opened struct {
	// uses counts them; guarded by inos.mu.
	uses int
	// size is that of the file as last heard.
	size atomic.Uint64

	mu sync.Mutex
	// order is the owner's, of size: an answer that another one has overtaken does
	// not set it.
	// +checklocks:mu
	order uint64
	// version counts the changes that we know of.
	version atomic.Uint64
	// owners is the owner's version as last heard, plus one; 0 is none.
	owners atomic.Uint64
}

// read notes the owner's version that came with bytes. A change is known before
// those bytes are used: with them nobody may use older ones, although the notice
// of the change is still under way.
func (o *opened) read(version uint64) {
	was := o.owners.Swap(version + 1)
	if changing := version%2 == 1; changing || was != 0 && was != version+1 {
		o.version.Add(1)
	}
}

// sized takes a size from an answer of an order.
func (o *opened) sized(size, order uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if order >= o.order {
		o.order = order
		o.size.Store(size)
	}
}

// use joins the handles of a file.
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

// leave ends a use.
func (s *inos) leave(ino objects.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[ino]
	if o.uses--; o.uses == 0 {
		delete(s.open, ino)
	}
}

// heard takes attributes that the node has told of.
func (s *inos) heard(a *objects.Attr, order uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.open[a.Ino]; o != nil {
		o.sized(a.Size, order)
	}
}

// changed has the files of an invalidation be of another version.
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
