package keyindex

import (
	"context"
	"strings"
	"sync"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// Registry is an Index kept in a coordination service.
type Registry struct {
	o      Options
	memory memory
	end    context.CancelFunc
	ended  chan struct{}
	// wake has room for one element, which means that there is work for the worker.
	wake chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	claims map[string]*claim
	// queue holds the names of the claims that the worker has to process.
	// +checklocks:mu
	queue map[string]struct{}
	// bound is the latest lease; turn counts the leases so far.
	// +checklocks:mu
	bound coord.Lease
	// +checklocks:mu
	turn int
	// away is set when the service did not answer the last request.
	// +checklocks:mu
	away bool
	// idle is closed and replaced whenever claims cease to be busy.
	// +checklocks:mu
	idle chan struct{}
	// strange records the entries that can't be decoded.
	strange coord.Strange
	// contested is the callback set by OnContested.
	// +checklocks:mu
	contested Contested
}

var _ Index = (*Registry)(nil)

// claim is the state of one of this node's keys. Registry.mu guards it.
type claim struct {
	// wanted is set while the key is in use here.
	wanted bool
	// shown is set when the key is in use regardless of the service: if another node has
	// the key, the claim becomes contested.
	shown bool
	// busy is set while one goroutine calls the service for the claim; all others wait.
	busy bool
	// revision is the revision of the entry in the service; 0 means no entry.
	revision coord.Revision
	// turn is the number of the lease that the entry is bound to.
	turn int
	// unsure is set when the service may have an entry that is not recorded here.
	unsure bool
	// contested is set while another node has the key.
	contested bool
}

// isOurs reports whether the service holds the claim under the lease with number turn.
func (c *claim) isOurs(turn int) bool { return c.revision != 0 && c.turn == turn && !c.unsure }

// OnContested sets the callback for keys in use here that another node has; see Index.
func (r *Registry) OnContested(fn Contested) {
	r.mu.Lock()
	r.contested = fn
	r.mu.Unlock()
	r.recontest() // those contested before fn was set
	r.awake()
}

// tellContested reports the requested claims that are contested to the callback, and
// reports whether all of them are settled.
func (r *Registry) tellContested(names []string, of []verdict) (settled bool) {
	type group struct {
		s  Space
		by members.Name
	}
	groups := map[group][]string{}
	r.mu.Lock()
	fn := r.contested
	for i, name := range names {
		if c := r.claims[name]; c != nil && c.contested && of[i].by != "" {
			space, key, _ := strings.Cut(name, "/")
			at := group{Space(space), of[i].by}
			groups[at] = append(groups[at], key)
		}
	}
	r.mu.Unlock()
	settled = true
	for at, keys := range groups {
		if fn != nil && !fn(at.s, keys, at.by) {
			settled = false
		}
	}
	return settled
}

// Have claims keys that are already in use; see Index.
func (r *Registry) Have(s Space, keys []string) {
	r.mu.Lock()
	for _, key := range keys {
		name := nameOf(s, key)
		c := r.claims[name]
		if c == nil {
			c = &claim{}
			r.claims[name] = c
		}
		c.wanted, c.shown = true, true
		r.queue[name] = struct{}{}
	}
	r.mu.Unlock()
	r.awake()
}

// Release gives up keys; see Index.
func (r *Registry) Release(s Space, keys []string) {
	r.mu.Lock()
	for _, key := range keys {
		name := nameOf(s, key)
		if c := r.claims[name]; c != nil {
			c.wanted, c.shown = false, false
			r.queue[name] = struct{}{}
		}
	}
	r.mu.Unlock()
	r.awake()
}

// Has reports whether a key is in use here; see Index.
func (r *Registry) Has(s Space, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.claims[nameOf(s, key)]
	return c != nil && c.wanted
}

// awake wakes the worker.
func (r *Registry) awake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// State reports the state of the index; see Index.
func (r *Registry) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := State{Unreadable: r.strange.Count()}
	for _, c := range r.claims {
		if !c.wanted {
			continue
		}
		s.Keys++
		if c.contested {
			s.Contested++
		} else if !c.isOurs(r.turn) {
			s.Unasked++
		}
	}
	return s
}

// recontest queues contested claims to be requested again.
func (r *Registry) recontest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.claims {
		if c.contested {
			r.queue[name] = struct{}{}
		}
	}
}

// renewLocked queues all claims to be made again.
//
// +checklocks:r.mu
func (r *Registry) renewLocked() {
	r.turn++
	for name := range r.claims {
		r.queue[name] = struct{}{}
	}
}

// idleLocked wakes the goroutines that wait for busy claims.
//
// +checklocks:r.mu
func (r *Registry) idleLocked() {
	close(r.idle)
	r.idle = make(chan struct{})
}

// verdict is the outcome of a claim that was requested from the service.
type verdict struct {
	// by is another node that has the key.
	by members.Name
	// granted reports whether the key may be used here.
	granted bool
}
