package filecollect

import (
	"context"
	"sync"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// meeting runs a collective for the nodes of a test: the last one to arrive does it for all.
type meeting struct {
	n int

	mu sync.Mutex
	// +checklocks:mu
	sources [][]byte
	// +checklocks:mu
	results [][]byte
	// +checklocks:mu
	came int
	// +checklocks:mu
	err error
	// +checklocks:mu
	over chan struct{}
	// gone is true if a node has left before the end.
	// +checklocks:mu
	gone bool
}

func newMeeting(n int) *meeting {
	return &meeting{n: n, sources: make([][]byte, n), results: make([][]byte, n), over: make(chan struct{})}
}

// meet passes in a node's bytes; do is called with those of all.
func (m *meeting) meet(ctx context.Context, me int, result, source domain.View, do func(results, sources [][]byte) error) error {
	m.mu.Lock()
	if m.gone {
		m.mu.Unlock()
		return context.Canceled
	}
	m.results[me], m.sources[me] = bytesOf(result), bytesOf(source)
	over := m.over
	if m.came++; m.came == m.n {
		copies := make([][]byte, m.n)
		for i := range copies {
			copies[i] = append([]byte(nil), m.sources[i]...)
		}
		m.err = do(m.results, copies)
		m.came, m.over = 0, make(chan struct{})
		close(over)
	}
	m.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
		// The memory of a node that has left is not accessed.
		m.mu.Lock()
		defer m.mu.Unlock()
		m.gone = true
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func bytesOf(v domain.View) []byte {
	return v.Buffer().Host(v.Offset(), v.Size())
}

// seat is the Group of one node of a meeting.
type seat struct {
	*meeting
	me int
}

var _ Group = seat{}

func (s seat) Rank() plan.Rank { return plan.Rank(s.me) }
func (s seat) Size() int       { return s.n }
func (s seat) Close() error    { return nil }

func (s seat) Share(context.Context, *region.Buffer) (bool, error) { return false, nil }

func combineAll(v domain.View, op elem.Op, all [][]byte) ([]byte, error) {
	sum := append([]byte(nil), all[0]...)
	for _, p := range all[1:] {
		if err := elem.Combine(op, v.Type(), sum, sum, p); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func (s seat) AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error {
	return s.meet(ctx, s.me, result, source, func(results, sources [][]byte) error {
		sum, err := combineAll(source, op, sources)
		for _, r := range results {
			copy(r, sum)
		}
		return err
	})
}

func (s seat) Reduce(ctx context.Context, result, source domain.View, op elem.Op, root plan.Rank) error {
	return s.meet(ctx, s.me, result, source, func(results, sources [][]byte) error {
		sum, err := combineAll(source, op, sources)
		copy(results[root], sum)
		return err
	})
}

func (s seat) ReduceScatter(ctx context.Context, result, source domain.View, op elem.Op) error {
	return s.meet(ctx, s.me, result, source, func(results, sources [][]byte) error {
		sum, err := combineAll(source, op, sources)
		size := source.Type().Size()
		for i, r := range results {
			p := plan.Part(source.Count(), i, s.n)
			copy(r, sum[p.Off*size:(p.Off+p.Len)*size])
		}
		return err
	})
}

func (s seat) AllGather(ctx context.Context, result, source domain.View) error {
	return s.meet(ctx, s.me, result, source, func(results, sources [][]byte) error {
		for _, r := range results {
			for i, p := range sources {
				copy(r[i*len(p):], p)
			}
		}
		return nil
	})
}

func (s seat) Broadcast(ctx context.Context, v domain.View, root plan.Rank) error {
	return s.meet(ctx, s.me, v, v, func(results, sources [][]byte) error {
		for _, r := range results {
			copy(r, sources[root])
		}
		return nil
	})
}

func (s seat) AllToAll(ctx context.Context, result, source domain.View) error {
	return s.meet(ctx, s.me, result, source, func(results, sources [][]byte) error {
		part := len(sources[0]) / s.n
		for to, r := range results {
			for from, p := range sources {
				copy(r[from*part:(from+1)*part], p[to*part:])
			}
		}
		return nil
	})
}
