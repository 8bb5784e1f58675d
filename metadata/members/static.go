package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// StaticOptions configure a static view.
type StaticOptions struct {
	// Self is this node's record: the name is required; Epoch is that of the node's
	// previous incarnation, 0 if it is not known. Static chooses the next one, unless Life
	// says that the incarnation continues.
	Self Record
	// Peers are the other nodes, each with a name and at least one address. Epoch and
	// devices are learned when a node is met.
	Peers []Record
}

// EnsureDefaults fills in the fields that have their zero value.
func (o *StaticOptions) EnsureDefaults() {
	if o.Self.Started.IsZero() {
		o.Self.Started = time.Now()
	}
}

// Validate reports every fault of the options, joined.
func (o *StaticOptions) Validate() error {
	faults := []error{o.Self.Validate()}
	ranks := map[uint32]Name{o.Self.Name.Rank(): o.Self.Name}
	for _, p := range o.Peers {
		if err := p.Validate(); err != nil {
			faults = append(faults, err)
			continue
		}
		if len(p.Addresses) == 0 {
			faults = append(faults, fmt.Errorf("members: node %s has no address", p.Name))
		}
		other, taken := ranks[p.Name.Rank()]
		switch {
		case taken && other == p.Name:
			faults = append(faults, fmt.Errorf("node %s is listed twice: %w", p.Name, ErrTaken))
		case taken:
			faults = append(faults, fmt.Errorf("nodes %s and %s have the same rank; rename one of them: %w", p.Name, other, ErrTaken))
		default:
			ranks[p.Name.Rank()] = p.Name
		}
	}
	return errors.Join(faults...)
}

// StaticView is a View of a fixed list, from which only Forget removes nodes.
type StaticView struct {
	*table

	mu sync.Mutex
	// +checklocks:mu
	self Record
	// forgotten holds the listed nodes that were removed from the view.
	// +checklocks:mu
	forgotten map[Name]Record
}

var _ View = (*StaticView)(nil)

// Static returns a view of a fixed list.
//
// Errors: ErrName; ErrTaken for a node that is listed twice, or for a rank of two nodes.
func Static(o StaticOptions) (*StaticView, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	v := &StaticView{table: newTable(), self: o.Self.clone(), forgotten: map[Name]Record{}}
	v.self.Epoch = firstEpoch(o.Self)
	for _, p := range o.Peers {
		if err := v.set(p.clone(), 0, 0); err != nil {
			return nil, fmt.Errorf("node %s: %w", p.Name, err)
		}
	}
	return v, nil
}

// Self returns this node's record; see View.
func (v *StaticView) Self() Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.self.clone()
}

// Update changes this node's record: addresses, devices, version. Other nodes learn of it
// when they connect.
func (v *StaticView) Update(change func(*Record)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	next, err := changed(v.self, change)
	if err != nil {
		return err
	}
	v.self = next
	return nil
}

// Met adopts what a node has reported of itself; see View. The addresses remain those of
// the list. A node that is not in the list is ignored; one that was forgotten is added
// again.
func (v *StaticView) Met(r Record) {
	if r.Validate() != nil {
		return
	}
	known, ok := v.Get(r.Name)
	if !ok {
		known, ok = v.recall(r.Name)
	}
	if !ok {
		return
	}
	r = r.clone()
	r.Addresses = known.Addresses
	_ = v.set(r, 0, 0) // it had a place in the table before
}

// Forget removes a node from the view until it is met again; see View.
//
// Errors: coord.ErrNotFound.
func (v *StaticView) Forget(_ context.Context, name Name) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.Get(name)
	if !ok {
		return fmt.Errorf("node %q: %w", name, coord.ErrNotFound)
	}
	v.forgotten[name] = r
	v.remove(name, 0)
	return nil
}

// recall removes and returns the record of a forgotten node.
func (v *StaticView) recall(name Name) (Record, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.forgotten[name]
	delete(v.forgotten, name)
	return r, ok
}

// State reports the state of the view, which never has a problem.
func (v *StaticView) State() State { return State{Backend: "static"} }

// Close does nothing: a static view holds no resources.
func (v *StaticView) Close(context.Context) error { return nil }

// changed returns a record after a change; its name, ID, epoch and life stay as they were.
func changed(self Record, change func(*Record)) (Record, error) {
	next := self.clone()
	change(&next)
	next.Name, next.ID, next.Epoch, next.Life = self.Name, self.ID, self.Epoch, self.Life
	return next, next.Validate()
}

// firstEpoch returns the epoch in which a node joins: the one of the incarnation that it
// continues, or a new one.
func firstEpoch(self Record) Epoch {
	if self.Life > 0 && self.Epoch > 0 {
		return self.Epoch
	}
	return nextEpoch(self.Epoch)
}

// nextEpoch returns an epoch greater than the last known one, and greater than those of
// earlier incarnations that are not known, unless the clock was set back since.
func nextEpoch(last Epoch) Epoch {
	return max(last+1, Epoch(max(time.Now().UnixMilli(), 0)))
}
