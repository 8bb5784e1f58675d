package fabric

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// hub holds the state that the ranks of Local share.
type hub struct {
	states []*rankState
	bells  []chan struct{}
	// rings is indexed by sender × ranks + receiver. Rings have no memory until wire is
	// called.
	rings []pipe
	wired sync.Once
	all   []*local

	mu sync.Mutex
	// +checklocks:mu
	closed []bool
	// rendezvous is the current rendezvous.
	// +checklocks:mu
	rendezvous *rendezvous
}

// rendezvous is a rendezvous of all ranks for a Share, Reform or Duplicate.
type rendezvous struct {
	// offers has nil for a rank that is not here.
	offers []*offer
	// over is closed when all ranks are here, or when one can no longer come; err is then
	// set.
	over chan struct{}
	err  error
}

// offer is one rank's contribution to a rendezvous.
type offer struct {
	buffer *region.Buffer
	bytes  []byte
	err    error
	// purpose names the operation that the rank waits in; made is its part of the result of
	// Duplicate.
	purpose hubPurpose
	made    *local
}

// hubPurpose names an operation in which all ranks take part.
type hubPurpose uint8

const (
	forShare hubPurpose = iota
	forReform
	forDuplicate
)

func newHub(n int) *hub {
	h := &hub{rings: make([]pipe, n*n), all: make([]*local, n), closed: make([]bool, n)}
	for range n {
		h.states = append(h.states, &rankState{})
		h.bells = append(h.bells, make(chan struct{}, 1))
	}
	h.rendezvous = newRendezvous(n)
	for from := range n {
		for to := range n {
			if from != to {
				h.rings[from*n+to].flow = &flow{}
			}
		}
	}
	for r := range n {
		h.all[r] = newLocal(h, plan.Rank(r))
	}
	return h
}

// wire allocates the rings. A hub whose links are not used takes no memory for them.
func (h *hub) wire() {
	h.wired.Do(func() {
		n := len(h.all)
		for i := range h.rings {
			if h.rings[i].flow != nil {
				h.rings[i].data = make([]byte, ringSize(n))
			}
		}
		for me, l := range h.all {
			for r, link := range l.links {
				if link != nil {
					link.out.data, link.in.data = h.rings[me*n+r].data, h.rings[r*n+me].data
				}
			}
		}
	})
}

func newRendezvous(n int) *rendezvous {
	return &rendezvous{offers: make([]*offer, n), over: make(chan struct{})}
}

// join waits until all ranks have come, and returns their offers.
func (h *hub) join(ctx context.Context, me plan.Rank, mine offer) ([]*offer, error) {
	m, err := h.come(me, mine)
	if err != nil {
		return nil, err
	}
	cause := h.all[me].until(ctx, m.over)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rendezvous != m {
		return m.offers, m.err
	}
	m.offers[me] = nil
	return nil, &MissingError{Ranks: m.missing(me), Err: cause}
}

// until waits for the end of a rendezvous. Its error is the reason why the wait ended
// first.
func (l *local) until(ctx context.Context, over chan struct{}) error {
	for !l.stopped.Swap(false) {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-l.interrupted:
		}
	}
	return ErrInterrupted
}

// missing returns the ranks, other than but, that have not come.
func (m *rendezvous) missing(but plan.Rank) (ranks []plan.Rank) {
	for r, o := range m.offers {
		if o == nil && r != int(but) {
			ranks = append(ranks, plan.Rank(r))
		}
	}
	return ranks
}

// come adds a rank to the current rendezvous.
func (h *hub) come(me plan.Rank, mine offer) (*rendezvous, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed[me] {
		return nil, ErrClosed
	}
	var gone []plan.Rank
	for r, closed := range h.closed {
		if closed {
			gone = append(gone, plan.Rank(r))
		}
	}
	if gone != nil {
		return nil, &MissingError{Ranks: gone, Err: errEnded}
	}
	m := h.rendezvous
	m.offers[me] = &mine
	if !slices.Contains(m.offers, nil) {
		h.concludeLocked(m)
	}
	return m, nil
}

// concludeLocked ends a rendezvous to which all ranks have come.
//
// +checklocks:h.mu
func (h *hub) concludeLocked(m *rendezvous) {
	purpose := m.offers[0].purpose
	for r, o := range m.offers {
		switch {
		case o.purpose != purpose:
			m.err = fmt.Errorf("ranks 0 and %d perform different operations (share, reform or duplicate): %w", r, ErrProtocol)
		case o.err != nil && m.err == nil:
			m.err = fmt.Errorf("rank %d: %w: %w", r, ErrUnmapped, o.err)
		}
	}
	switch {
	case m.err != nil:
	case purpose == forReform:
		for _, l := range h.all {
			l.reset()
		}
	case purpose == forDuplicate:
		for r, l := range newHub(len(h.all)).all {
			m.offers[r].made = l
		}
	default:
		m.err = m.hold()
	}
	h.endLocked(m)
}

// hold holds each buffer once for every rank but its own, which holds it already.
func (m *rendezvous) hold() error {
	var held []*region.Buffer
	for r, o := range m.offers {
		for range len(m.offers) - 1 {
			if err := o.buffer.Hold(); err != nil {
				for _, b := range held {
					b.Drop()
				}
				return fmt.Errorf("rank %d: %w: %w", r, ErrUnmapped, err)
			}
			held = append(held, o.buffer)
		}
	}
	return nil
}

// +checklocks:h.mu
func (h *hub) endLocked(m *rendezvous) {
	h.rendezvous = newRendezvous(len(m.offers))
	close(m.over)
}

// leave records that a rank takes part in no more rendezvous.
func (h *hub) leave(me plan.Rank) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed[me] = true
	if m := h.rendezvous; slices.ContainsFunc(m.offers, func(o *offer) bool { return o != nil }) {
		m.err = &MissingError{Ranks: []plan.Rank{me}, Err: errEnded}
		h.endLocked(m)
	}
}
