package keyindex

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// Claim claims keys for this node; see Index.
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

// begin marks as busy the claims that have to be requested, and returns their indices in
// mine and those of claims that are already busy in theirs. All others are held already.
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
			// A claim that was given up is requested too: the worker may be waiting for the
			// service to answer again, and the lease may have ended meanwhile.
			c.wanted, c.busy = true, true
			mine = append(mine, i)
		}
	}
	return mine, theirs, r.idle
}

// asker distinguishes the origins of requests for claims.
type asker bool

const (
	// caller requests keys that are not in use here yet. A claim that the service does not
	// grant is given up. A service that is away is not asked.
	caller asker = false
	// worker requests keys that are already in use.
	worker asker = true
)

// ask requests from the service the names whose claims were marked busy. When it returns,
// the claims are no longer busy.
func (r *Registry) ask(ctx context.Context, names []string, who asker) []verdict {
	// Once begun, the request is completed, so that the state in the service is known.
	ctx = context.WithoutCancel(ctx)
	lease, epoch, turn := r.lease()
	if lease == nil || who == caller && r.isAway() {
		return r.settle(names, nil, who)
	}
	me := keyOwner{node: r.o.Self, epoch: epoch}
	entries := make([]coord.Entry, len(names))
	for i, name := range names {
		entries[i] = coord.Entry{Name: name, Value: me.encode()}
	}
	results, err := r.o.Service.Create(ctx, entries, lease)
	r.observed(err)
	answers := make(map[string]answer, len(names))
	var old []coord.Entry // our own entries that exist already
	for i, e := range entries {
		a, again := answer{unsure: true}, false
		if i < len(results) {
			a, again = r.resolve(e, results[i])
		}
		if again {
			e.Revision = results[i].Found.Revision
			old = append(old, e)
		}
		a.turn = turn
		answers[e.Name] = a
	}
	if len(old) > 0 {
		again, againErr := r.o.Service.Replace(ctx, old, lease)
		r.observed(againErr)
		err = errors.Join(err, againErr)
		for i, e := range old {
			if i < len(again) && again[i].Err == nil && again[i].Revision != 0 {
				answers[e.Name] = answer{revision: again[i].Revision, turn: turn}
			}
		}
	}
	if err != nil {
		r.o.Logger.Debug("keys could not be claimed", zap.Int("keys", len(names)), zap.Error(err))
	}
	return r.settle(names, answers, who)
}

// answer is the service's answer about one claim.
type answer struct {
	revision coord.Revision
	turn     int
	by       members.Name
	unsure   bool
}

// resolve interprets a result. An existing entry of this node may be bound to a lease that is
// about to end: it has to be written again, and until then the claim is unsure.
func (r *Registry) resolve(want coord.Entry, got coord.Result) (a answer, again bool) {
	switch {
	case got.Err == nil:
		r.strange.Gone(want.Name)
		return answer{revision: got.Revision, unsure: got.Revision == 0}, false
	case !errors.Is(got.Err, coord.ErrExist):
		return answer{unsure: !errors.Is(got.Err, coord.ErrLease)}, false
	}
	has, err := decodeKeyOwner(got.Found.Value)
	if err != nil {
		r.strange.Found(r.o.Logger, "cannot decode an entry of the index", got.Found, err)
		return answer{by: "?"}, false
	}
	r.strange.Gone(want.Name)
	if has.node != r.o.Self {
		return answer{by: has.node}, false
	}
	return answer{unsure: true}, true
}

// lease returns the lease that claims are bound to, the epoch, and the number of the lease.
// The first call that sees a new lease queues all claims to be made again under it.
func (r *Registry) lease() (l coord.Lease, epoch members.Epoch, turn int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Called with the lock held, so that an older lease can't replace a newer one.
	l, epoch, _ = r.o.Lease()
	if l != nil && l != r.bound {
		r.bound = l
		r.renewLocked()
	}
	return l, epoch, r.turn
}

// settle records the outcomes of requested claims; a name without an answer was not
// requested. Claims of a caller that are not granted are given up in the same critical
// section, so that the worker does not mistake them for keys in use.
func (r *Registry) settle(names []string, answers map[string]answer, who asker) []verdict {
	out := make([]verdict, len(names))
	r.mu.Lock()
	for i, name := range names {
		c := r.claims[name]
		r.settleLocked(name, answers[name])
		out[i] = verdict{by: answers[name].by, granted: c.shown || c.isOurs(r.turn)}
		if who == caller && !out[i].granted {
			c.wanted = false
		}
	}
	r.idleLocked()
	r.mu.Unlock()
	r.awake()
	return out
}

// +checklocks:r.mu
func (r *Registry) settleLocked(name string, a answer) {
	c := r.claims[name]
	c.busy = false
	// An entry of a claim that was not requested may still exist in the service.
	unasked := a == answer{} && c.revision != 0
	c.revision, c.turn, c.unsure = a.revision, a.turn, c.unsure || a.unsure || unasked
	c.contested = a.by != ""
	switch {
	case a.by != "":
		c.unsure = false
		if !c.shown {
			delete(r.claims, name)
		}
	case a.revision != 0:
		c.unsure = false
	}
	if !c.wanted || a.by == "" && !c.isOurs(r.turn) {
		r.queue[name] = struct{}{}
	}
}
