package collective

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/fault/fabric/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// TestSettle: rank 0 loses its link when rank 1, which gets no result, has sent everything.
// With Settle rank 1 is still in the call, and sends again; without it rank 1 has left, and
// rank 0 learns so when rank 1 is back.
func TestSettle(t *testing.T) {
	for settle, again := range map[devices.Size]bool{1: true, 12000: true, 12001: false, 0: false} {
		t.Run(settle.String(), func(t *testing.T) {
			kit.Check(t)
			w, faults := newFaulty(t, 2, Options{Algorithm: plan.Binomial, Check: CheckOff, Settle: settle})
			s := &settlers{w: w, faults: faults, cut: make(chan struct{})}
			for r := range s.sources {
				s.sources[r], s.results[r] = w.floats(r, settleCount), w.floats(9, settleCount)
			}
			s.test(t, again)
		})
	}
}

// settleCount is fewer elements than a ring in memory holds.
const settleCount = 3000

// settlers are two ranks that reduce.
type settlers struct {
	w                *ranks
	faults           *faulty.Faults
	sources, results [2]domain.View
	// cut is closed when the link is.
	cut chan struct{}
}

func (s *settlers) reduce(t *testing.T, r int) error {
	return s.w.groups[r].Reduce(t.Context(), s.results[r], s.sources[r], elem.Sum, 0)
}

// cutAfter cuts the link when rank 1 has sent so many bytes in total.
func (s *settlers) cutAfter(bytes uint64) {
	for s.faults.Sent(1, 0) < bytes {
		runtime.Gosched()
	}
	s.faults.Cut(0, 1)
	s.faults.Lag(1, 0, 0)
	close(s.cut)
}

func (s *settlers) test(t *testing.T, again bool) {
	t.Helper()
	if err := together(2, func(r int) error { return s.reduce(t, r) }); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(hostBytes(s.results[0]))
	clear(hostBytes(s.results[0]))
	until := s.faults.Sent(1, 0) + headSize + 4*settleCount
	s.faults.Lag(1, 0, 1<<60) // rank 0 receives none of it
	var errs [2]error
	var next error
	_ = together(3, func(r int) error {
		if r == 2 {
			s.cutAfter(until)
			return nil
		}
		if errs[r] = s.reduce(t, r); r == 1 && !again {
			<-s.cut // then it makes the next call
			next = s.reduce(t, r)
		}
		return nil
	})
	switch {
	case errs[1] != nil || next != nil || again != (errs[0] == nil) || !again && !errors.Is(errs[0], ErrRetry):
		t.Fatalf("%v, and then %v", errs, next)
	case again && !bytes.Equal(hostBytes(s.results[0]), want):
		t.Errorf("rank 0 has other bytes, from %d on", kit.FirstDiff(hostBytes(s.results[0]), want))
	}
}

// TestSettleNext: rank 1 is one call ahead when rank 0 loses its link, in a call that was
// compared before: rank 0 learns so, and both execute that call.
func TestSettleNext(t *testing.T) {
	kit.Check(t)
	w, faults := newFaulty(t, 2, Options{Algorithm: plan.Binomial})
	s := &settlers{w: w, faults: faults, cut: make(chan struct{})}
	var more [2]domain.View
	for r := range s.sources {
		s.sources[r], s.results[r], more[r] = w.floats(r, settleCount), w.floats(9, settleCount), w.floats(r, 2*settleCount)
	}
	next := func(r int) error { return w.groups[r].AllReduce(t.Context(), more[r], more[r], elem.Sum) }
	for _, call := range []func(int) error{func(r int) error { return s.reduce(t, r) }, next} {
		if err := together(2, call); err != nil {
			t.Fatal(err)
		}
	}
	until := s.faults.Sent(1, 0) + headSize + 4*settleCount
	s.faults.Lag(1, 0, 1<<60) // rank 0 receives none of it
	var errs [2]error
	err := together(3, func(r int) error {
		if r == 2 {
			s.cutAfter(until)
			return nil
		}
		if errs[r] = s.reduce(t, r); r == 1 {
			<-s.cut
		}
		return next(r)
	})
	if errs[1] != nil || !errors.Is(errs[0], ErrRetry) || err != nil {
		t.Errorf("%v, and then %v", errs, err)
	}
}
