package memcoord

import (
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// DefaultHistory is the default number of changes that a server keeps.
const DefaultHistory = 10_000

// Options configures a Server.
type Options struct {
	// History is the number of recent changes to keep, for watches that start after an earlier
	// revision and for those that read slowly. Default DefaultHistory.
	History int
}

// Stats counts the traffic between clients and server.
type Stats struct {
	// Calls counts calls, including failed ones.
	Calls uint64
	// Events counts the changes passed to watches, once for each watch, and EventBytes the
	// bytes of their names and values.
	Events, EventBytes uint64
	// Values, Leases and Watches are the current numbers.
	Values, Leases, Watches int
}

// item is a value with the lease to which it is bound.
type item struct {
	coord.Entry
	lease *lease
}

func before(a, b item) bool { return a.Name < b.Name }

// Server is a coordination service. Its methods may be called from any goroutine.
type Server struct {
	history int

	mu sync.Mutex
	// +checklocks:mu
	values *btree.BTreeG[item]
	// +checklocks:mu
	revision coord.Revision
	// log holds the recent changes; forgotten is the revision of the last change that was
	// dropped from it.
	// +checklocks:mu
	log []coord.Event
	// +checklocks:mu
	forgotten coord.Revision
	// watches is indexed by prefix.
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

// NewServer creates an empty service.
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

// Client creates a connection to the service for one node.
func (s *Server) Client() *Client {
	return &Client{server: s, watches: make(map[*watch]struct{})}
}

// SetDown stops the service, or starts it again with all of its state. While the service is
// down no lease ends, and after a restart each lease has its full time to live again.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		s.breakWatchesLocked(nil, coord.ErrUnavailable)
	}
	s.tendLocked(nil)
}

// SetDenied makes the service refuse all clients, or ends that.
func (s *Server) SetDenied(deny bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deny = deny
}

// Wipe removes everything: values, leases, and the count of revisions. Watches end as if the
// connection had broken.
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

// Compact drops the history. Watches that have not read the dropped changes end, and do not
// receive them.
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

// Stats returns the counters.
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

// putLocked writes a value and binds it to the given lease only.
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

// removeLocked removes an existing value.
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

// publishLocked passes a change to the watches and records it.
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
