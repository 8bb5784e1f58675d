package keyindex

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// workerBatch is the maximum number of claims that the worker processes at a time.
const workerBatch = 1024

// New returns a running registry. Close stops it.
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

// Close stops the background work. The entries in the service remain until the lease ends.
func (r *Registry) Close() error {
	r.end()
	<-r.ended
	return nil
}

// run executes the deferred work until the context ends.
func (r *Registry) run(ctx context.Context, changed <-chan struct{}) {
	defer close(r.ended)
	look := time.NewTicker(r.o.Look)
	defer look.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			_, _, changed = r.o.Lease()
			r.lease()
		case <-look.C:
			r.look(ctx)
		case <-r.wake:
			if again != nil {
				continue // the service is away: wait for the timer
			}
		case <-again:
			r.recontest()
		}
		again = nil
		if left := r.work(ctx); left {
			again = time.After(r.o.Retry)
		}
	}
}

// work processes the queue, and reports whether work remains because the service did not
// answer or because another node has yet to settle a conflict.
func (r *Registry) work(ctx context.Context) (left bool) {
	for ctx.Err() == nil {
		claims, leaving := r.next()
		if len(claims)+len(leaving) == 0 {
			return left || r.isAway() && !r.answers(ctx)
		}
		if len(claims) > 0 && !r.tellContested(claims, r.ask(ctx, claims, worker)) {
			left = true
		}
		if len(leaving) > 0 {
			r.leave(ctx, leaving)
		}
		if r.stuck(claims, leaving) {
			return true
		}
	}
	return left
}

// next removes the next claims from the queue and marks them busy: those to be requested,
// and those to be given up.
func (r *Registry) next() (claims, leaving []string) {
	lease, _, _ := r.o.Lease()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.queue {
		if len(claims)+len(leaving) == workerBatch {
			break
		}
		c := r.claims[name]
		switch {
		case c == nil, c.busy: // a busy one is queued again when the request ends
		case !c.wanted && c.revision == 0 && !c.unsure:
			delete(r.claims, name)
		case !c.wanted:
			c.busy = true
			leaving = append(leaving, name)
		case c.isOurs(r.turn):
		case lease == nil:
			continue // it waits for the next lease
		default:
			// It was granted before, so it is in use, whichever node has it now.
			c.busy, c.shown = true, true
			claims = append(claims, name)
		}
		delete(r.queue, name)
	}
	return claims, leaving
}

// answers probes a service that did not answer before.
func (r *Registry) answers(ctx context.Context) bool {
	_, err := r.o.Service.Get(ctx, nameOf(Keys, ""))
	r.observed(err)
	return !r.isAway()
}

// stuck reports whether the service failed to answer for any of the claims.
func (r *Registry) stuck(claims, leaving []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Concat(claims, leaving) {
		c := r.claims[name]
		if c != nil && !c.busy && !c.contested && (c.unsure || c.wanted && c.revision == 0) {
			return true
		}
	}
	return false
}

// leave removes the entries of claims that are no longer wanted.
func (r *Registry) leave(ctx context.Context, names []string) {
	entries, unsure := r.entries(names)
	gone := make(map[string]bool, len(names))
	var failed error
	for _, name := range unsure {
		e, err := r.ours(ctx, name)
		if errors.Is(err, coord.ErrNotFound) {
			gone[name] = true
			continue
		}
		if err != nil {
			failed = err // the others would fail too
			break
		}
		entries = append(entries, e)
	}
	results, err := r.o.Service.Delete(ctx, entries)
	r.observed(cmp.Or(failed, err))
	if err != nil {
		r.o.Logger.Debug("keys could not be released", zap.Int("keys", len(entries)), zap.Error(err))
	}
	for i, e := range entries {
		// An entry that has changed meanwhile no longer belongs to this node.
		gone[e.Name] = i < len(results) && (results[i].Err == nil || errors.Is(results[i].Err, coord.ErrChanged))
	}
	r.settleLeft(names, gone)
}

// settleLeft records which claims were given up. All are queued again: they may be wanted
// again by now, or giving them up may have failed.
func (r *Registry) settleLeft(names []string, gone map[string]bool) {
	r.mu.Lock()
	for _, name := range names {
		c := r.claims[name]
		c.busy, c.unsure = false, !gone[name]
		if gone[name] {
			c.revision = 0
		}
		r.queue[name] = struct{}{}
	}
	r.idleLocked()
	r.mu.Unlock()
	r.awake()
}

// entries returns the entries of claims in the service, and separately the claims whose
// entries are not known.
func (r *Registry) entries(names []string) (entries []coord.Entry, unsure []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if c := r.claims[name]; c.unsure {
			unsure = append(unsure, name)
		} else {
			entries = append(entries, coord.Entry{Name: name, Revision: c.revision})
		}
	}
	return entries, unsure
}

// ours reads an entry that belongs to this node.
//
// Errors: coord.ErrNotFound, also for another node's entry.
func (r *Registry) ours(ctx context.Context, name string) (coord.Entry, error) {
	e, err := r.o.Service.Get(ctx, name)
	if err != nil {
		return e, err
	}
	if t, err := decodeKeyOwner(e.Value); err != nil || t.node != r.o.Self {
		return e, coord.ErrNotFound
	}
	return e, nil
}

// look checks for changes that were not reported: it queues contested claims, and all
// claims if a sample is missing from the service, as after its data was deleted.
func (r *Registry) look(ctx context.Context) {
	r.recontest()
	var sample string
	var revision coord.Revision
	r.mu.Lock()
	for name, c := range r.claims {
		if c.wanted && !c.busy && c.isOurs(r.turn) {
			sample, revision = name, c.revision
			break
		}
	}
	r.mu.Unlock()
	if sample == "" {
		return
	}
	e, err := r.o.Service.Get(ctx, sample)
	if errors.Is(err, coord.ErrNotFound) || err == nil && e.Revision != revision {
		r.missed(sample, revision)
	}
}

// missed queues all claims to be made again, unless the one that is missing from the
// service was given up meanwhile.
func (r *Registry) missed(name string, revision coord.Revision) {
	r.mu.Lock()
	c := r.claims[name]
	still := c != nil && c.wanted && !c.busy && c.revision == revision
	if still {
		r.renewLocked()
	}
	r.mu.Unlock()
	if still {
		r.o.Logger.Warn("keys are missing from the service; creating them again", zap.String("one", name))
	}
}
