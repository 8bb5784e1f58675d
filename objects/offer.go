package objects

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// offer is the state of a file in publish/, which goes to one receiver. It alone
// decides to which one:
//
//	offered ──claim──> claimed ──take──> taken
//	   ^                │    │             │
//	   └────giveBack────┘    └────end──────┴──> gone
//
// One claimant has it at a time; others wait for the outcome. A reader takes it before
// the last bytes are returned to it: from then on the file is received, whatever
// happens, and only its name remains to be removed. All other receivers end it in the
// step that removes the name. A withdrawal ends it from any state but taken.
//
// An offer lives as long as its object is in memory. Until it is claimed, it has no
// state that the records don't have; a claimant keeps the object in use.
type offer struct {
	// name is the name in publish/; it never changes.
	name string
	// publication tells the publisher that the offer has ended; nil for a renamed file.
	publication *devices.Signal
	// receipt is noted when the offer is received, for a publisher that a later daemon continues; empty for none.
	receipt string

	// mu is a leaf.
	mu sync.Mutex
	// +checklocks:mu
	state offerState
	// by is the claimant that has claimed or taken it; nil if that was in an earlier process. If it has
	// received the file, it remains set when the offer is gone, and may still read.
	// +checklocks:mu
	by *claimant
	// why is the error for other claimants when the offer is taken or gone.
	// +checklocks:mu
	why error
	// changed is closed, and replaced, at each change of state.
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

// claimant is a potential receiver: an open file, or a call.
type claimant struct {
	// reserves reports that it may hold the claim for as long as a program takes to deliver
	// the bytes elsewhere.
	reserves bool
}

// claimWait says whether a claim waits while another claimant reserves the offer.
type claimWait bool

const (
	// waits waits for the outcome of any other claim.
	waits claimWait = true
	// asksOnce fails if the other claimant reserves, and waits for one that does not.
	asksOnce claimWait = false
)

// newOffer makes the offer of a file in publish/.
func newOffer(name string, received bool, p *devices.Signal) *offer {
	f := &offer{name: name, publication: p, changed: make(chan struct{})}
	if received { // by an open file of an earlier process; its name is still to be removed
		f.state, f.why = taken, errReceived(name)
	}
	return f
}

func errReceived(name string) error {
	return fmt.Errorf("%q has already been received: %w", name, metadata.ErrNotExist)
}

// look checks that a claimant may still read the file.
//
// Errors: metadata.ErrNotExist if another one has received it, or it was withdrawn;
// ErrLost if its publisher has ended.
func (f *offer) look(by *claimant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == offered || f.state == claimed || f.by == by {
		return nil
	}
	return f.why
}

// claim excludes all other claimants until giveBack, take or end. mine reports that the
// caller has received the file already.
//
// Errors: those of look; ErrBusy while another one reserves it; the context's.
func (f *offer) claim(ctx context.Context, by *claimant, p claimWait) (mine bool, err error) {
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
			return false, fmt.Errorf("another receiver has claimed %q: %w", f.name, ErrBusy)
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

// giveBack offers the file again; false if the offer has ended meanwhile.
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

// take marks the file as received by its claimant. The claims that wait for the outcome
// fail.
//
// Errors: those of look, if the offer has ended meanwhile; ErrInvalid without a claim.
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

// holds checks that a claimant still has the claim, or has taken the file. The result
// is stable while the caller has the lock of names in publish/.
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

// receivedBy checks that a reader has taken the file, whose name is still to be removed. It has not while another thread makes it
// the receiver: then the bytes have not reached it.
//
// Errors: those of holds.
func (f *offer) receivedBy(by *claimant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == taken && f.by == by {
		return nil
	}
	return f.deniedLocked()
}

// deniedLocked returns the reason why a claimant does not have the claim.
//
// +checklocks:f.mu
func (f *offer) deniedLocked() error {
	if f.why != nil {
		return f.why
	}
	return fmt.Errorf("%q is not claimed: %w", f.name, ErrInvalid)
}

// end is called when the name has been removed, and returns how the offer has ended: as
// kind, or as received if it was taken before. why is the error for other claimants,
// nil for the default of kind. For an offer that has ended already it changes nothing.
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

// untaken fails if the file is received, or the offer has ended.
func (f *offer) untaken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == taken || f.state == gone {
		return f.why
	}
	return nil
}
