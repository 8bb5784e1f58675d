package runner

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrMissing reports ranks that have not come to a barrier.
var ErrMissing = errors.New("ranks are missing")

// MissingError lists the ranks that have not come. It matches ErrMissing.
type MissingError struct {
	Barrier string
	Ranks   []int
	// Ended reports that they have ended, and will never come.
	Ended bool
	After time.Duration
}

// Error lists the ranks.
func (e *MissingError) Error() string {
	if e.Ended {
		return fmt.Sprintf("barrier %q: ranks %v have ended without reaching it", e.Barrier, e.Ranks)
	}
	return fmt.Sprintf("barrier %q: ranks %v are missing after %v", e.Barrier, e.Ranks, e.After)
}

// Is makes the error ErrMissing.
func (e *MissingError) Is(target error) bool { return target == ErrMissing }

// arrival is the message of a rank that comes to a barrier.
type arrival struct {
	Rank int    `json:"rank"`
	Name string `json:"name"`
	// Timeout is in nanoseconds; 0 means no limit.
	Timeout time.Duration `json:"timeout"`
}

// answer is the reply to it.
type answer struct {
	Missing []int  `json:"missing,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
	Fault   string `json:"fault,omitempty"`
}

const (
	// mostBarriers bounds the barriers of a job in use at once.
	mostBarriers = 4096
	// mostArrivals bounds the number of ranks of a host that wait at barriers.
	mostArrivals = 1024
)

// jobBarriers are the barriers of a job across all its hosts, for ranks that are not Go
// programs. They are used by the runner's loop only.
type jobBarriers struct {
	ranks int
	ended map[int]bool
	// waiting holds the ranks that have come to each barrier.
	waiting map[string]map[int]waiter
}

// waiter is a rank at a barrier: its host, and the number of its arrival there.
type waiter struct {
	host *host
	id   uint64
}

func newJobBarriers(ranks int) *jobBarriers {
	return &jobBarriers{ranks: ranks, ended: map[int]bool{}, waiting: map[string]map[int]waiter{}}
}

// come adds a rank of a host to a barrier, and releases all ranks if it is the last one. An
// error means that the host violates the protocol.
func (m *jobBarriers) come(h *host, v *numberedArrival) error {
	a := v.Arrival
	if _, double := h.arrivals[v.ID]; double || len(h.arrivals) >= mostArrivals {
		return fmt.Errorf("more ranks at barriers than it can have: %w", ErrProtocol)
	}
	at := m.waiting[a.Name]
	switch {
	case at == nil && len(m.waiting) >= mostBarriers:
		h.release(v.ID, answer{Fault: "too many barriers are in use"})
		return nil
	case at[a.Rank].host != nil:
		h.release(v.ID, answer{Fault: fmt.Sprintf("rank %d is already waiting at this barrier", a.Rank)})
		return nil
	case at == nil:
		at = map[int]waiter{}
		m.waiting[a.Name] = at
	}
	at[a.Rank] = waiter{h, v.ID}
	h.arrivals[v.ID] = a
	m.settle(a.Name)
	return nil
}

// settle releases the ranks at a barrier if all have come, or if one of the others never
// will.
func (m *jobBarriers) settle(name string) {
	at := m.waiting[name]
	var out answer
	if len(at) < m.ranks {
		for rank := range m.ended {
			if at[rank].host == nil {
				out.Missing, out.Ended = append(out.Missing, rank), true
			}
		}
		if !out.Ended {
			return
		}
		slices.Sort(out.Missing)
	}
	m.release(name, out)
}

// release answers all ranks at a barrier, which is then as before they came.
func (m *jobBarriers) release(name string, a answer) {
	for _, w := range m.waiting[name] {
		w.host.release(w.id, a)
	}
	delete(m.waiting, name)
}

// leave removes a rank that no longer waits, and answers with the missing ranks; the
// barrier is then as before the rank came. If the rank was released already, leave does
// nothing.
func (m *jobBarriers) leave(h *host, id uint64) {
	a, waits := h.arrivals[id]
	if !waits {
		return
	}
	at := m.waiting[a.Name]
	var out answer
	for rank := range m.ranks {
		if at[rank].host == nil {
			out.Missing = append(out.Missing, rank)
		}
	}
	delete(at, a.Rank)
	if len(at) == 0 {
		delete(m.waiting, a.Name)
	}
	h.release(id, out)
}

// end records that a rank will come to no more barriers.
func (m *jobBarriers) end(rank int) {
	m.ended[rank] = true
	for name := range m.waiting {
		m.settle(name)
	}
}

// close releases all waiting ranks. All ranks have ended.
func (m *jobBarriers) close() {
	for name := range m.waiting {
		m.release(name, answer{Fault: "the job has ended"})
	}
}
