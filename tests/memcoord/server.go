package memcoord

import (
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// DefaultHistory is the number of changes that a server remembers.
const DefaultHistory = 10_000

// Options describe a server.
type Options struct {
	// History is the number of the last changes that are remembered, for watches
	// that begin behind an earlier revision and for those that are slow to
	// read. Default DefaultHistory.
	History int
}

// Stats counts what has gone over the ways between clients and server.
type Stats struct {
	// Calls counts questions: those that failed, too.
	Calls uint64
	// Events counts changes handed to watches, once for each watch, and
	// EventBytes the bytes of their names and values.
	Events, EventBytes uint64
	// Values counts them, Leases and Watches alike.
	Values, Leases, Watches int
}

// item is a value with the lease it is bound to.
type item struct {
	coord.Entry
	lease *lease
}

func before(a, b item) bool { return a.Name < b.Name }

// Server is a coordination service. Its methods may be called from any
// goroutine.
type Server struct {
	history int

	mu sync.Mutex
	// +checklocks:mu
	values *btree.BTreeG[item]
	// +checklocks:mu
	revision coord.Revision
	// log is the last changes; forgotten is the revision of the last one that
	// is not in it any more.
	// +checklocks:mu
	log []coord.Event
	// +checklocks:mu
	forgotten coord.Revision
	// watches by prefix.
	// +checklocks:mu
	watches map[string]map[*watch]struct{}
	// +checklocks:mu
	leases map[*lease]struct{}
	// +checklocks:mu
	down bool
	// +checklocks:mu
	deny bool
	// +checklocks:mu
	stats Stats
}

// NewServer makes an empty service.
func NewServer(o Options) *Server {
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	s := &Server{
		history: o.History,
		watches: make(map[string]map[*watch]struct{}),
		leases:  make(map[*lease]struct{}),
	}
	s.values = newValues()
	return s
}

func newValues() *btree.BTreeG[item] {
	return btree.NewBTreeGOptions(before, btree.Options{NoLocks: true})
}

// Client makes a way to the service, as one node has it.
func (s *Server) Client() *Client {
	return &Client{server: s, watches: make(map[*watch]struct{})}
}

// SetDown stops the service, or starts it again with all that it had. A
// service that is down ends no leases, and when it is back each has its whole
// time again.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		s.breakWatchesLocked(nil, coord.ErrUnavailable)
	}
	s.tendLocked(nil)
}

// SetDenied makes the service refuse everybody, or stop it.
func (s *Server) SetDenied(deny bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deny = deny
}

// Wipe loses everything: values, leases, and the count of revisions. Watches
// end as if the connection had broken.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakWatchesLocked(nil, coord.ErrUnavailable)
	for l := range s.leases {
		if !l.ended {
			s.forgetLocked(l)
		}
	}
	s.values = newValues()
	s.revision, s.forgotten, s.log = 0, 0, nil
}

// Compact forgets the history. Watches that have not read what is forgotten
// are not told of it otherwise.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.forgotten = nil, s.revision
	for _, set := range s.watches {
		for w := range set {
			if len(w.queue) > 0 {
				s.endWatchLocked(w, coord.ErrCompacted)
			}
		}
	}
}

// Stats says what has been counted.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Values = s.values.Len()
	for l := range s.leases {
		if !l.ended {
			st.Leases++
		}
	}
	for _, set := range s.watches {
		st.Watches += len(set)
	}
	return st
}

// putLocked writes a value and binds it to the lease alone.
//
// +checklocks:s.mu
func (s *Server) putLocked(name string, value []byte, l *lease) coord.Revision {
	s.revision++
	e := coord.Entry{Name: name, Value: value, Revision: s.revision}
	old, had := s.values.Set(item{Entry: e, lease: l})
	if had && old.lease != nil {
		delete(old.lease.names, name)
	}
	if l != nil {
		l.names[name] = struct{}{}
	}
	s.publishLocked(coord.Event{Entry: e})
	return s.revision
}

// removeLocked removes a value that is there.
//
// +checklocks:s.mu
func (s *Server) removeLocked(it item) coord.Revision {
	s.revision++
	s.values.Delete(it)
	if it.lease != nil {
		delete(it.lease.names, it.Name)
	}
	s.publishLocked(coord.Event{Entry: coord.Entry{Name: it.Name, Revision: s.revision}, Deleted: true})
	return s.revision
}

// publishLocked tells the watches of a change and remembers it.
//
// +checklocks:s.mu
func (s *Server) publishLocked(ev coord.Event) {
	if len(s.log) == 2*s.history {
		s.forgotten = s.log[s.history-1].Revision
		s.log = append(s.log[:0:0], s.log[s.history:]...)
	}
	s.log = append(s.log, ev)
	for prefix, set := range s.watches {
		if !strings.HasPrefix(ev.Name, prefix) {
			continue
		}
		for w := range set {
			s.pushLocked(w, ev)
		}
	}
}
