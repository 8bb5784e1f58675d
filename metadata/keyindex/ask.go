package keyindex

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// ask asks the service for names whose claims the caller has made busy. For
// each it tells which other node has it; none is ours, also where the service
// could not be asked. The claims are not busy any more then. One that does not
// answer is asked by who insists alone.
func (r *Registry) ask(ctx context.Context, names []string, insist bool) (by []members.Name) {
	by = make([]members.Name, len(names))
	// What was begun is brought to its end, so that it is known what is there.
	ctx = context.WithoutCancel(ctx)
	lease, epoch, turn := r.lease()
	if lease == nil || !insist && r.isAway() {
		r.settle(names, map[string]answer{})
		return by
	}
	me := tenant{node: r.o.Self, epoch: epoch}
	entries := make([]coord.Entry, len(names))
	for i, name := range names {
		entries[i] = coord.Entry{Name: name, Value: me.encode()}
	}
	results, err := r.o.Service.Create(ctx, entries, lease)
	r.heard(err)
	answers := make(map[string]answer, len(names))
	for i, name := range names {
		a := answer{unsure: true}
		if i < len(results) {
			a = r.judge(ctx, entries[i], results[i], lease)
		}
		a.turn = turn
		answers[name], by[i] = a, a.by
	}
	if err != nil {
		r.o.Logger.Debug("keys could not be claimed", zap.Int("keys", len(names)), zap.Error(err))
	}
	r.settle(names, answers)
	return by
}

// answer is what the service has said of a claim.
type answer struct {
	revision coord.Revision
	turn     int
	by       members.Name
	unsure   bool
}

// judge says what a result means. An entry of ours that is there may be bound
// to a lease that ends: it is made again.
func (r *Registry) judge(ctx context.Context, want coord.Entry, got coord.Result, lease coord.Lease) answer {
	switch {
	case got.Err == nil:
		return answer{revision: got.Revision}
	case !errors.Is(got.Err, coord.ErrExist):
		return answer{unsure: !errors.Is(got.Err, coord.ErrLease)}
	}
	has, err := decodeTenant(got.Found.Value)
	if err != nil {
		r.o.Logger.Warn("an entry of the index can't be read", zap.String("name", want.Name), zap.Error(err))
		return answer{by: "?"}
	}
	if has.node != r.o.Self {
		return answer{by: has.node}
	}
	revision, err := r.o.Service.Replace(ctx, got.Found, want.Value, lease)
	if err != nil {
		return answer{unsure: true}
	}
	return answer{revision: revision}
}

// lease is what claims are bound to, and which one that is.
func (r *Registry) lease() (l coord.Lease, epoch members.Epoch, turn int) {
	r.mu.Lock()
	turn = r.turn
	r.mu.Unlock()
	// In this order: a lease that is newer than its turn is asked for again, and
	// never the other way round.
	l, epoch, _ = r.o.Lease()
	return l, epoch, turn
}

// settle notes what became of claims that were asked for: those without an
// answer were not.
func (r *Registry) settle(names []string, answers map[string]answer) {
	r.mu.Lock()
	for _, name := range names {
		r.settleLocked(name, answers[name])
	}
	r.idleLocked()
	r.mu.Unlock()
	r.awake()
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
	c.revision, c.turn, c.unsure = a.revision, a.turn, c.unsure || a.unsure
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
