package keyindex

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// asker tells on whose behalf the service is asked for claims.
type asker bool

const (
	// caller asks for what it does not have yet. What the service does not grant
	// is given up. A service that does not answer is not asked.
	caller asker = false
	// worker asks again for what is in use.
	worker asker = true
)

// verdict tells the outcome of a claim that the service was asked for.
type verdict struct {
	// by is another node that has it.
	by members.Name
	// granted says that it may be used here.
	granted bool
}

// ask asks the service for names whose claims the caller has made busy. The
// claims are not busy any more then.
func (r *Registry) ask(ctx context.Context, names []string, who asker) []verdict {
	// What was begun is brought to its end, so that it is known what is there.
	ctx = context.WithoutCancel(ctx)
	lease, epoch, turn := r.lease()
	if lease == nil || who == caller && r.isAway() {
		return r.settle(names, map[string]answer{}, who)
	}
	me := tenant{node: r.o.Self, epoch: epoch}
	entries := make([]coord.Entry, len(names))
	for i, name := range names {
		entries[i] = coord.Entry{Name: name, Value: me.encode()}
	}
	results, err := r.o.Service.Create(ctx, entries, lease)
	r.heard(err)
	told := make([]answer, len(names))
	var old []coord.Entry // those of ours that are there already
	var oldAt []int
	for i := range names {
		told[i] = answer{unsure: true}
		if i >= len(results) {
			continue
		}
		var again bool
		if told[i], again = r.judge(entries[i], results[i]); again {
			entries[i].Revision = results[i].Found.Revision
			old, oldAt = append(old, entries[i]), append(oldAt, i)
		}
	}
	if len(old) > 0 {
		again, againErr := r.o.Service.Replace(ctx, old, lease)
		r.heard(againErr)
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

// answer is the service's answer about a claim.
type answer struct {
	revision coord.Revision
	turn     int
	by       members.Name
	unsure   bool
}

// judge says what a result means. An entry of ours that is there may be bound
// to a lease that ends: it has to be written again, and until then it is unsure.
func (r *Registry) judge(want coord.Entry, got coord.Result) (a answer, again bool) {
	switch {
	case got.Err == nil:
		r.strange.Gone(want.Name)
		return answer{revision: got.Revision, unsure: got.Revision == 0}, false
	case !errors.Is(got.Err, coord.ErrExist):
		return answer{unsure: !errors.Is(got.Err, coord.ErrLease)}, false
	}
	has, err := decodeTenant(got.Found.Value)
	if err != nil {
		r.strange.Found(r.o.Logger, "an entry of the index can't be read", got.Found, err)
		return answer{by: "?"}, false
	}
	r.strange.Gone(want.Name)
	if has.node != r.o.Self {
		return answer{by: has.node}, false
	}
	return answer{unsure: true}, true
}

// lease returns the lease that claims are bound to, and which one that is. Who is the first to
// see another one has all claims made again under it.
func (r *Registry) lease() (l coord.Lease, epoch members.Epoch, turn int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Within the lock, so that nobody takes an older one for the newer one.
	l, epoch, _ = r.o.Lease()
	if l != nil && l != r.bound {
		r.bound = l
		r.renewLocked()
	}
	return l, epoch, r.turn
}

// settle notes what became of claims that were asked for: those without an
// answer were not. What a caller is not granted is given up in the same step, so
// that the worker takes it for nothing that is in use.
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

// idleLocked wakes who waits for claims that are not busy any more.
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
	// What the service was not asked for may still be there.
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
