package keyindex

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// asker distinguishes the origins of requests for claims.
type asker bool

const (
	// caller requests keys that are not in use here yet. A claim that the service does not
	// grant is given up. A service that is away is not asked.
	caller asker = false
	// worker requests keys that are already in use.
	worker asker = true
)

// verdict is the outcome of a claim that was requested from the service.
type verdict struct {
	// by is another node that has the key.
	by members.Name
	// granted reports whether the key may be used here.
	granted bool
}

// ask requests from the service the names whose claims were marked busy. When it returns,
// the claims are no longer busy.
func (r *Registry) ask(ctx context.Context, names []string, who asker) []verdict {
	// Once begun, the request is completed, so that the state in the service is known.
	ctx = context.WithoutCancel(ctx)
	lease, epoch, turn := r.lease()
	if lease == nil || who == caller && r.isAway() {
		return r.settle(names, map[string]answer{}, who)
	}
	me := keyOwner{node: r.o.Self, epoch: epoch}
	entries := make([]coord.Entry, len(names))
	for i, name := range names {
		entries[i] = coord.Entry{Name: name, Value: me.encode()}
	}
	results, err := r.o.Service.Create(ctx, entries, lease)
	r.observed(err)
	told := make([]answer, len(names))
	var old []coord.Entry // our own entries that exist already
	var oldAt []int
	for i := range names {
		told[i] = answer{unsure: true}
		if i >= len(results) {
			continue
		}
		var again bool
		if told[i], again = r.resolve(entries[i], results[i]); again {
			entries[i].Revision = results[i].Found.Revision
			old, oldAt = append(old, entries[i]), append(oldAt, i)
		}
	}
	if len(old) > 0 {
		again, againErr := r.o.Service.Replace(ctx, old, lease)
		r.observed(againErr)
		err = errors.Join(err, againErr)
		for n, i := range oldAt {
			if n < len(again) && again[n].Err == nil && again[n].Revision != 0 {
				told[i] = answer{revision: again[n].Revision}
			}
		}
	}
	answers := make(map[string]answer, len(names))
	for i, name := range names {
		told[i].turn = turn
		answers[name] = told[i]
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

// idleLocked wakes the goroutines that wait for busy claims.
//
// +checklocks:r.mu
func (r *Registry) idleLocked() {
	close(r.idle)
	r.idle = make(chan struct{})
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
