package keyindex

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// Registry is an Index in a coordination service.
type Registry struct {
	o      Options
	memory memory
	end    context.CancelFunc
	ended  chan struct{}
	// wake has room for one: there is something for the worker.
	wake chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	claims map[string]*claim
	// queue are the claims, by name, that the worker has to look at.
	// +checklocks:mu
	queue map[string]struct{}
	// bound is the last lease that there was, and turn counts them.
	// +checklocks:mu
	bound coord.Lease
	// +checklocks:mu
	turn int
	// away says that the service did not answer when it was asked last.
	// +checklocks:mu
	away bool
	// idle is closed, and made anew, when claims have ceased to be busy.
	// +checklocks:mu
	idle chan struct{}
	// strange are the entries that can't be read.
	strange coord.Strange
	// contested is OnContested's.
	// +checklocks:mu
	contested Contested
}

var _ Index = (*Registry)(nil)

// claim has what is known of one key of ours. The registry's lock guards it.
type claim struct {
	// wanted says that the key is in use here.
	wanted bool
	// shown says that it is in use whatever the service says: another node that
	// has it makes it contested.
	shown bool
	// busy says that somebody is asking the service; nobody else does.
	busy bool
	// revision is that of the entry in the service; 0 is none.
	revision coord.Revision
	// turn is that of the lease that the entry is bound to.
	turn int
	// unsure says that there may be an entry that we don't know of.
	unsure bool
	// contested says that another node has the key.
	contested bool
}

// isOurs says that the service has the claim, under the lease of a turn.
func (c *claim) isOurs(turn int) bool { return c.revision != 0 && c.turn == turn && !c.unsure }

// New makes a registry. Close ends it.
func New(o Options) (*Registry, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Logger = o.Logger.Named("keyindex")
	ctx, end := context.WithCancel(context.Background())
	r := &Registry{
		o: o, end: end, ended: make(chan struct{}), wake: make(chan struct{}, 1),
		memory: newMemory(o.Remember),
		claims: map[string]*claim{}, queue: map[string]struct{}{}, idle: make(chan struct{}),
	}
	_, _, changed := o.Lease()
	go r.run(ctx, changed)
	return r, nil
}

// Close ends the work in the background. What is in the service stays there for
// as long as the lease.
func (r *Registry) Close() error {
	r.end()
	<-r.ended
	return nil
}

// Claim makes keys ours; see Index.
func (r *Registry) Claim(ctx context.Context, s Space, keys []string) []error {
	errs := make([]error, len(keys))
	left := make([]int, len(keys))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		mine, theirs, idle := r.begin(s, keys, left)
		switch {
		case len(mine) > 0:
			names := make([]string, len(mine))
			for n, i := range mine {
				names[n] = nameOf(s, keys[i])
			}
			for n, v := range r.ask(ctx, names, caller) {
				i := mine[n]
				if v.by != "" {
					errs[i] = &TakenError{Key: keys[i], Node: v.by}
				} else if !v.granted {
					errs[i] = fmt.Errorf("claim key %q: %w", keys[i], coord.ErrUnavailable)
				}
			}
		case len(theirs) > 0:
			select {
			case <-idle:
			case <-ctx.Done():
				for _, i := range theirs {
					errs[i] = ctx.Err()
				}
				return errs
			}
		}
		left = theirs
	}
	return errs
}

// OnContested has fn called with keys in use here that another node has; see
// Index.
func (r *Registry) OnContested(fn Contested) {
	r.mu.Lock()
	r.contested = fn
	r.mu.Unlock()
	r.recontest() // those that fn has not heard of
	r.awake()
}

// tellContested tells which claims that were asked for are contested, and reports
// whether all of them are settled.
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

// begin makes the claims, by place, busy that are to be asked for, and tells
// those that somebody else is busy with. The others are ours.
func (r *Registry) begin(s Space, keys []string, which []int) (mine, theirs []int, idle <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range which {
		name := nameOf(s, keys[i])
		c := r.claims[name]
		switch {
		case c == nil:
			r.claims[name] = &claim{wanted: true, busy: true}
			mine = append(mine, i)
		case c.busy:
			theirs = append(theirs, i)
		case c.contested, !c.wanted, !c.shown && !c.isOurs(r.turn):
			// One that was given up is asked for too: the worker may be waiting for
			// the service to answer again, and the lease have ended meanwhile.
			c.wanted, c.busy = true, true
			mine = append(mine, i)
		}
	}
	return mine, theirs, r.idle
}

// Have makes keys ours that are in use; see Index.
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

// Release gives keys up; see Index.
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

// Has says whether a key is in use here; see Index.
func (r *Registry) Has(s Space, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.claims[nameOf(s, key)]
	return c != nil && c.wanted
}

// awake has the worker look at the queue.
func (r *Registry) awake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// State says how the index is doing; see Index.
func (r *Registry) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := State{Unreadable: r.strange.Count()}
	for _, c := range r.claims {
		switch {
		case !c.wanted:
		case c.contested:
			s.Keys++
			s.Contested++
		case !c.isOurs(r.turn):
			s.Keys++
			s.Unasked++
		default:
			s.Keys++
		}
	}
	return s
}
