package collective

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// TestSettle has rank 0 lose its link when rank 1, which gets nothing, has sent all
// that it has to: with Settle it is still there, and sends it again; without it is
// gone, and rank 0 hears so when it is there again.
func TestSettle(t *testing.T) {
	for settle, again := range map[devices.Size]bool{1: true, 12000: true, 12001: false, 0: false} {
		t.Run(settle.String(), func(t *testing.T) {
			kit.Check(t)
			const count = 3000 // fewer bytes than a ring in memory takes
			w, faults := newFaulty(t, 2, Options{Algorithm: plan.Binomial, Check: CheckOff, Settle: settle})
			sources, results := [2]domain.View{}, [2]domain.View{}
			for r := range sources {
				sources[r], results[r] = w.floats(r, count), w.floats(9, count)
			}
			reduce := func(r int) error {
				return w.groups[r].Reduce(t.Context(), results[r], sources[r], elem.Sum, 0)
			}
			if err := together(2, reduce); err != nil {
				t.Fatal(err)
			}
			want := bytes.Clone(hostBytes(results[0]))
			clear(hostBytes(results[0]))
			sent := faults.Sent(1, 0)
			faults.Lag(1, 0, 1<<60)
			var errs [2]error
			cut := make(chan struct{})
			if err := together(3, func(r int) error {
				if r < 2 {
					if errs[r] = reduce(r); r == 1 && !again {
						<-cut // then it does what comes next
						return w.groups[r].Reduce(t.Context(), results[r], sources[r], elem.Sum, 0)
					}
					return nil
				}
				for faults.Sent(1, 0) < sent+headSize+4*count {
					runtime.Gosched()
				}
				faults.Cut(0, 1)
				faults.Lag(1, 0, 0)
				close(cut)
				return nil
			}); err != nil {
				t.Error(err)
			}
			if errs[1] != nil || again != (errs[0] == nil) || !again && !errors.Is(errs[0], ErrRetry) {
				t.Fatalf("%v", errs)
			}
			if got := hostBytes(results[0]); again && !bytes.Equal(got, want) {
				t.Errorf("rank 0 has other bytes, from %d on", kit.FirstDiff(got, want))
			}
		})
	}
}
