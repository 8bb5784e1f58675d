package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrMissing is ranks that have not come to a barrier.
var ErrMissing = errors.New("ranks are missing")

// MissingError is the ranks that have not come. It is ErrMissing.
type MissingError struct {
	Barrier string
	Ranks   []int
	// Ended says that they have ended, and will never come.
	Ended bool
	After time.Duration
}

// Error lists the ranks.
func (e *MissingError) Error() string {
	if e.Ended {
		return fmt.Sprintf("barrier %q: ranks %v have ended without coming to it", e.Barrier, e.Ranks)
	}
	return fmt.Sprintf("barrier %q: ranks %v are missing after %v", e.Barrier, e.Ranks, e.After)
}

// Is makes the error ErrMissing.
func (e *MissingError) Is(target error) bool { return target == ErrMissing }

// arrival is what a rank says that comes to a barrier.
type arrival struct {
	Rank int    `json:"rank"`
	Name string `json:"name"`
	// Timeout is in nanoseconds; 0 is none.
	Timeout time.Duration `json:"timeout"`
}

// answer is what it is told.
type answer struct {
	Missing []int  `json:"missing,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
	Fault   string `json:"fault,omitempty"`
}

// longestArrival is the most bytes of one.
const longestArrival = 4096

// meeting is the barriers of a job, for ranks that are no Go programs.
type meeting struct {
	listener net.Listener
	ranks    int
	closed   sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	ended map[int]bool
	// waiting are who has come to each barrier.
	// +checklocks:mu
	waiting map[string]map[int]chan answer
}

// newMeeting listens for ranks that come to barriers.
func newMeeting(socket string, ranks int) (*meeting, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("barriers: %w", err)
	}
	m := &meeting{listener: l, ranks: ranks, ended: map[int]bool{}, waiting: map[string]map[int]chan answer{}}
	m.closed.Go(m.accept)
	return m, nil
}

func (m *meeting) accept() {
	for {
		c, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.closed.Go(func() {
			defer func() { _ = c.Close() }()
			_ = json.NewEncoder(c).Encode(m.serve(c)) // who has gone needs no answer
		})
	}
}

// serve lets one rank wait.
func (m *meeting) serve(c net.Conn) answer {
	var a arrival
	from := bufio.NewReaderSize(c, longestArrival)
	line, err := from.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil || a.Rank < 0 || a.Rank >= m.ranks {
		return answer{Fault: "not understood"}
	}
	ch, fault := m.come(a)
	if fault != "" {
		return answer{Fault: fault}
	}
	gone := make(chan struct{})
	go func() {
		_, _ = from.ReadByte() // nothing more is said: it is the end
		close(gone)
	}()
	var late <-chan time.Time
	if a.Timeout > 0 {
		t := time.NewTimer(a.Timeout)
		defer t.Stop()
		late = t.C
	}
	select {
	case got := <-ch:
		return got
	case <-late:
		return m.leave(a, ch)
	case <-gone:
		return m.leave(a, ch)
	}
}

// come notes a rank at a barrier, and lets all go when it is the last one.
func (m *meeting) come(a arrival) (chan answer, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.waiting[a.Name]
	if at == nil {
		at = map[int]chan answer{}
		m.waiting[a.Name] = at
	}
	if at[a.Rank] != nil {
		return nil, fmt.Sprintf("rank %d waits at this barrier already", a.Rank)
	}
	ch := make(chan answer, 1)
	at[a.Rank] = ch
	m.settleLocked(a.Name)
	return ch, ""
}

// settleLocked lets the ranks at a barrier go, if all have come, or if one of
// the others never will.
//
// +checklocks:m.mu
func (m *meeting) settleLocked(name string) {
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

// leave takes a rank away that waits no longer: the barrier is as it was before
// it came. If it was let go in the same moment, that holds.
func (m *meeting) leave(a arrival, ch chan answer) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case got := <-ch:
		return got
	default:
	}
	var out answer
	at := m.waiting[a.Name]
	for rank := range m.ranks {
		if at[rank] == nil {
			out.Missing = append(out.Missing, rank)
		}
	}
	delete(at, a.Rank)
	if len(at) == 0 {
		delete(m.waiting, a.Name)
	}
	return out
}

// end notes that a rank will come to no barrier any more.
func (m *meeting) end(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[rank] = true
	for name := range m.waiting {
		m.settleLocked(name)
	}
}

// close lets nobody come any more. All ranks have ended.
func (m *meeting) close() {
	_ = m.listener.Close()
	m.mu.Lock()
	for name, at := range m.waiting {
		for _, ch := range at {
			ch <- answer{Fault: "the job has ended"}
		}
		delete(m.waiting, name)
	}
	m.mu.Unlock()
	m.closed.Wait()
}

// Barrier waits at a job's barrier until all ranks are there. It can be used
// again, also after an error.
//
// Errors: a MissingError; the context's.
func Barrier(ctx context.Context, socket, name string, rank int, timeout time.Duration) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("barrier: the runner does not answer: %w", err)
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var got answer
	if err = json.NewEncoder(c).Encode(arrival{Rank: rank, Name: name, Timeout: timeout}); err == nil {
		err = json.NewDecoder(c).Decode(&got)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("barrier: the runner has gone: %w", err)
	case got.Fault != "":
		return fmt.Errorf("barrier %q: %s", name, got.Fault)
	case len(got.Missing) > 0:
		return &MissingError{Barrier: name, Ranks: got.Missing, Ended: got.Ended, After: timeout}
	}
	return nil
}
