package runner

import (
	"errors"
	"fmt"
	"slices"
	"sync"
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

// mostBarriers bounds the barriers of a job in use at once.
const mostBarriers = 4096

// jobBarriers are the barriers of a job across all its hosts, for ranks that are not Go
// programs.
type jobBarriers struct {
	mu sync.Mutex
	// +checklocks:mu
	ranks int
	// +checklocks:mu
	ended map[int]bool
	// waiting holds the ranks that have come to each barrier.
	// +checklocks:mu
	waiting map[string]map[int]chan answer
}

func newJobBarriers(ranks int) *jobBarriers {
	return &jobBarriers{ranks: ranks, ended: map[int]bool{}, waiting: map[string]map[int]chan answer{}}
}

// come adds a rank to a barrier, and releases all ranks if it is the last one.
func (m *jobBarriers) come(a arrival) (chan answer, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.waiting[a.Name]
	if at == nil {
		if len(m.waiting) >= mostBarriers {
			return nil, "too many barriers are in use"
		}
		at = map[int]chan answer{}
		m.waiting[a.Name] = at
	}
	if at[a.Rank] != nil {
		return nil, fmt.Sprintf("rank %d is already waiting at this barrier", a.Rank)
	}
	ch := make(chan answer, 1)
	at[a.Rank] = ch
	m.settleLocked(a.Name)
	return ch, ""
}

// settleLocked releases the ranks at a barrier if all have come, or if one of the others
// never will.
//
// +checklocks:m.mu
func (m *jobBarriers) settleLocked(name string) {
	at := m.waiting[name]
	var out answer
	if len(at) < m.ranks {
		for rank := range m.ended {
			if at[rank] == nil {
				out.Missing, out.Ended = append(out.Missing, rank), true
			}
		}
		if !out.Ended {
			return
		}
		slices.Sort(out.Missing)
	}
	for _, ch := range at {
		ch <- out
	}
	delete(m.waiting, name)
}

// leave removes a rank that no longer waits, and answers with the missing ranks; the
// barrier is then as before the rank came. If the rank was released already, leave does
// nothing.
func (m *jobBarriers) leave(a arrival, ch chan answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.waiting[a.Name]
	if at[a.Rank] != ch {
		return
	}
	var out answer
	for rank := range m.ranks {
		if at[rank] == nil {
			out.Missing = append(out.Missing, rank)
		}
	}
	delete(at, a.Rank)
	if len(at) == 0 {
		delete(m.waiting, a.Name)
	}
	ch <- out
}

// end records that a rank will come to no more barriers.
func (m *jobBarriers) end(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[rank] = true
	for name := range m.waiting {
		m.settleLocked(name)
	}
}

// close releases all waiting ranks. All ranks have ended.
func (m *jobBarriers) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, at := range m.waiting {
		for _, ch := range at {
			ch <- answer{Fault: "the job has ended"}
		}
		delete(m.waiting, name)
	}
}
