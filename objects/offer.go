package objects

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// offer is a file in publish/ on its way to one receiver. Which one is decided
// here, and nowhere else:
//
//	offered ──claim──> claimed ──take──> taken
//	   ^                │    │             │
//	   └────giveBack────┘    └────end──────┴──> gone
//
// One claims it at a time, and who comes meanwhile waits for what becomes of
// that. A reader takes it before it is given its last byte: from then on it is
// received, whatever happens, and only its name is left to go. All others end
// it in the step that takes the name away. Withdrawn it goes from any state
// but taken.
//
// An offer lives as long as its object is in memory. Until it is claimed it
// knows nothing that the records don't; who has claimed it has the object in
// use.
type offer struct {
	// name is that in publish/; it never changes.
	name string
	// publication is waited for by its publisher; nil for a renamed file.
	publication *Publication

	// mu is a leaf.
	mu sync.Mutex
	// +checklocks:mu
	state offerState
	// by has claimed or taken it. It stays known, and reads on, when the offer is gone
	// since it has received it.
	// +checklocks:mu
	by *claimant
	// why is the error for others that come when it is taken or gone.
	// +checklocks:mu
	why error
	// changed is closed, and made anew, with each change of state.
	// +checklocks:mu
	changed chan struct{}
}

type offerState int

const (
	offered offerState = iota
	claimed
	taken
	gone
)

// claimant is one who may receive: an open file, or a call.
type claimant struct {
	// reserves says that it may have the claim for as long as a program takes to
	// deliver the bytes somewhere.
	reserves bool
}

// patience says whether a claim waits for one that another has.
type patience bool

const (
	// waits waits for what becomes of the other one's.
	waits patience = true
	// asksOnce fails where the other one reserves, and waits for one that is only
	// about to receive.
	asksOnce patience = false
)

// newOffer is the offer of a file in publish/.
func newOffer(name string, received bool, p *Publication) *offer {
	f := &offer{name: name, publication: p, changed: make(chan struct{})}
	if received { // by an open file whose name is still to go
		f.state, f.by, f.why = taken, &claimant{}, errReceived(name)
	}
	return f
}

func errReceived(name string) error {
	return fmt.Errorf("%q was received: %w", name, metadata.ErrNotExist)
}

// look says whether the file can be read by one who may receive it.
//
// Errors: metadata.ErrNotExist when somebody else has received it, or it was
// withdrawn; ErrLost when its publisher has ended.
func (f *offer) look(by *claimant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == offered || f.state == claimed || f.by == by {
		return nil
	}
	return f.why
}

// claim keeps all others from receiving it until giveBack, take or end. mine says
// that the caller has received it already.
//
// Errors: those of look; ErrBusy while another one reserves it; the context's.
func (f *offer) claim(ctx context.Context, by *claimant, p patience) (mine bool, err error) {
	for {
		f.mu.Lock()
		switch {
		case f.state == offered:
			f.moveLocked(claimed)
			f.by = by
			f.mu.Unlock()
			return false, nil
		case f.state != claimed && f.by == by:
			f.mu.Unlock()
			return true, nil
		case f.state != claimed:
			err = f.why
			f.mu.Unlock()
			return false, err
		case p == asksOnce && f.by.reserves:
			f.mu.Unlock()
			return false, fmt.Errorf("another one is receiving %q: %w", f.name, ErrBusy)
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// giveBack offers it again; false when it has gone meanwhile.
func (f *offer) giveBack(by *claimant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != claimed || f.by != by {
		return false
	}
	f.moveLocked(offered)
	f.by = nil
	return true
}

// take makes it received by its claimant. Nobody waits for that any more.
//
// Errors: those of look, when it has gone meanwhile; ErrInvalid without a claim.
func (f *offer) take(by *claimant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != claimed || f.by != by {
		return f.deniedLocked()
	}
	f.moveLocked(taken)
	f.why = errReceived(f.name)
	return nil
}

// holds says whether it is still claimed, or taken, by one. Who has the lock of
// names in publish/ can rely on it.
//
// Errors: those of look; ErrInvalid without a claim.
func (f *offer) holds(by *claimant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (f.state == claimed || f.state == taken) && f.by == by {
		return nil
	}
	return f.deniedLocked()
}

// deniedLocked is why one has not got the claim.
//
// +checklocks:f.mu
func (f *offer) deniedLocked() error {
	if f.why != nil {
		return f.why
	}
	return fmt.Errorf("%q is not claimed: %w", f.name, ErrInvalid)
}

// end is called when the name has gone, and tells how: as kind, or received
// after all when it was taken before. why is what others are told, nil for
// what kind says. Ended again it does nothing, and says the same.
func (f *offer) end(kind EventKind, why error) EventKind {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == taken {
		kind = EventConsumed
	}
	switch {
	case f.state == gone:
		return kind
	case kind == EventConsumed:
		f.why = errReceived(f.name)
	default:
		f.by, f.why = nil, why
	}
	if f.why == nil {
		f.why = fmt.Errorf("%q was withdrawn: %w", f.name, metadata.ErrNotExist)
	}
	f.moveLocked(gone)
	return kind
}

// +checklocks:f.mu
func (f *offer) moveLocked(to offerState) {
	f.state = to
	close(f.changed)
	f.changed = make(chan struct{})
}

// untaken fails when it is received, or has gone.
func (f *offer) untaken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == taken || f.state == gone {
		return f.why
	}
	return nil
}
