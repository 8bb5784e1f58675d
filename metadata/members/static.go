package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// StaticOptions describe a static view.
type StaticOptions struct {
	// Self is our own record: the name is required, and the epoch that of the
	// node's last time, 0 if that is not known. Static makes the next one.
	Self Record
	// Peers are the others: a name and at least one address each. Epoch and
	// devices are learned when they are met.
	Peers []Record
}

// EnsureDefaults fills in what is left at its zero value.
func (o *StaticOptions) EnsureDefaults() {
	if o.Self.Started.IsZero() {
		o.Self.Started = time.Now()
	}
}

// Validate reports every fault of the options at once, joined.
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
			faults = append(faults, fmt.Errorf("nodes %s and %s have one rank; rename one: %w", p.Name, other, ErrTaken))
		default:
			ranks[p.Name.Rank()] = p.Name
		}
	}
	return errors.Join(faults...)
}

// StaticView is a View of a list, which changes by Forget alone.
type StaticView struct {
	*table

	mu sync.Mutex
	// +checklocks:mu
	self Record
	// forgotten are nodes of the list that the view is without.
	// +checklocks:mu
	forgotten map[Name]Record
}

var _ View = (*StaticView)(nil)

// Static makes a view of a list.
//
// Errors: ErrName, ErrTaken for a node that is listed twice.
func Static(o StaticOptions) (*StaticView, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	v := &StaticView{table: newTable(), self: o.Self.clone(), forgotten: map[Name]Record{}}
	v.self.Epoch = nextEpoch(o.Self.Epoch)
	for _, p := range o.Peers {
		if err := v.set(p.clone(), 0, 0); err != nil {
			return nil, fmt.Errorf("node %s: %w", p.Name, err)
		}
	}
	return v, nil
}

// Self is our own record; see View.
func (v *StaticView) Self() Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.self.clone()
}

// Update changes what our own record says: addresses, devices, version. Others
// hear of it when they meet us.
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

// Met learns what a node says of itself; see View. The address stays that of
// the list. A node that is not in the list is passed over, and one that was
// forgotten is back.
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
	_ = v.set(r, 0, 0) // there was room for it before
}

// Forget takes a node that is gone for good out of the view, until it is met
// again; see View.
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

// recall takes a node out of those that were forgotten.
func (v *StaticView) recall(name Name) (Record, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.forgotten[name]
	delete(v.forgotten, name)
	return r, ok
}

// State says how the view is doing: always well.
func (v *StaticView) State() State { return State{Backend: "static"} }

// Close does nothing: nobody keeps the view.
func (v *StaticView) Close(context.Context) error { return nil }

// changed is a record of ours after a change that leaves alone who it is.
func changed(self Record, change func(*Record)) (Record, error) {
	next := self.clone()
	change(&next)
	next.Name, next.ID, next.Epoch = self.Name, self.ID, self.Epoch
	return next, next.Validate()
}

// nextEpoch is an epoch behind the last one that is known, and behind that of
// earlier incarnations of which nothing is known, unless the clock was set
// back since.
func nextEpoch(last Epoch) Epoch {
	return max(last+1, Epoch(max(time.Now().UnixMilli(), 0)))
}
