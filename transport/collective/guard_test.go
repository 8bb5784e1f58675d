package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/fault/fabric/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// newFaulty makes groups whose links can be broken.
func newFaulty(t *testing.T, n int, o Options) (*ranks, *faulty.Faults) {
	t.Helper()
	all, err := fabric.Local(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		t.Cleanup(func() { _ = f.Close() })
	}
	faults, broken := faulty.Wrap(all)
	return groupsOf(t, broken, o), faults
}

// floats returns a view of new memory with count numbers of a rank.
func (w *ranks) floats(rank int, count uint64) domain.View {
	w.t.Helper()
	b := w.buffer(4 * count)
	copy(b.Host(0, devices.Size(4*count)), sample(elem.Float32, count, uint64(rank+1)))
	v, err := domain.NewView(b, 0, elem.Float32, count)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func hostBytes(v domain.View) []byte { return v.Buffer().Host(v.Offset(), v.Size()) }

// TestInconsistent: rank 1 makes a call that differs in one respect. All ranks get an error
// that names the difference, no element is modified, and later consistent calls work.
// Without the check the same holds where every rank receives from the others, except that
// elements may have moved.
func TestInconsistent(t *testing.T) {
	other := map[string]func(w *ranks, c *Call){
		"count": func(w *ranks, c *Call) { c.Source, c.Result = w.floats(1, 2000), w.floats(1, 2000) },
		"op":    func(_ *ranks, c *Call) { c.Op = elem.Max },
		"root":  func(_ *ranks, c *Call) { c.Root = 1 },
		"kind":  func(_ *ranks, c *Call) { c.Kind, c.Root = plan.AllReduce, 0 },
		"type": func(w *ranks, c *Call) {
			v, err := domain.NewView(w.buffer(4000), 0, elem.Int32, 1000)
			if err != nil {
				w.t.Fatal(err)
			}
			c.Source, c.Result = v, v
		},
	}
	for field, change := range other {
		for _, check := range []Check{CheckOff, CheckFirst, CheckAll} {
			for _, n := range []int{2, 3} {
				c := Call{Kind: plan.Reduce, Op: elem.Sum}
				if check == CheckOff {
					if field == "root" || field == "kind" {
						continue // a rank that only sends notices nothing
					}
					c.Kind = plan.AllReduce
				}
				t.Run(fmt.Sprintf("%s/%s/%d", field, check, n), func(t *testing.T) {
					kit.Check(t)
					w, _ := newFaulty(t, n, Options{Check: check, Algorithm: plan.Ring})
					testInconsistent(t, w, field, change, c)
				})
			}
		}
	}
}

func testInconsistent(t *testing.T, w *ranks, field string, change func(*ranks, *Call), c Call) {
	t.Helper()
	n := len(w.groups)
	calls := make([]*Call, n)
	call := func(r int) *Call {
		own := c
		own.Source, own.Result = w.floats(r, 1000), w.floats(r, 1000)
		return &own
	}
	for r := range calls {
		calls[r] = call(r)
	}
	change(w, calls[1])
	before := make([][]byte, n)
	for r, c := range calls {
		before[r] = bytes.Clone(hostBytes(c.Result))
	}
	errs := make([]error, n)
	_ = together(n, func(r int) error {
		errs[r] = w.groups[r].Do(t.Context(), calls[r])
		return nil
	})
	for r, err := range errs {
		var e *InconsistentError
		if !errors.As(err, &e) || !errors.Is(err, ErrInconsistent) {
			t.Fatalf("rank %d: %v", r, err)
		}
		if !slices.ContainsFunc(e.Fields, func(f FieldDifference) bool { return f.Field == field && f.Local != f.Remote }) {
			t.Errorf("rank %d: %v does not name %s", r, err, field)
		}
		if r != 1 && e.Rank != 1 {
			t.Errorf("rank %d: %v does not name rank 1", r, err)
		}
		if w.groups[r].opts.Check != CheckOff && !bytes.Equal(before[r], hostBytes(calls[r].Result)) {
			t.Errorf("rank %d: elements have moved", r)
		}
	}
	calls[1] = call(1)
	if err := together(n, func(r int) error { return w.groups[r].Do(t.Context(), calls[r]) }); err != nil {
		t.Errorf("after they agree: %v", err)
	}
}

// TestOptionsDiffer makes groups of ranks with different options.
func TestOptionsDiffer(t *testing.T) {
	for field, other := range map[string]Options{
		"algorithm":   {Algorithm: plan.Ring},
		"strict":      {Strict: true},
		"check":       {Check: CheckAll},
		"buffer":      {Buffer: devices.MiB},
		"topology":    {Topology: "abc"},
		"order":       {Order: []plan.Rank{1, 0}},
		"retry":       {Retry: 3},
		"keep-source": {KeepSource: true},
		"timeout":     {Timeout: time.Minute},
		"settle":      {Settle: devices.MiB},
	} {
		t.Run(field, func(t *testing.T) {
			kit.Check(t)
			all, err := fabric.Local(2)
			if err != nil {
				t.Fatal(err)
			}
			errs := make([]error, 2)
			_ = together(2, func(r int) error {
				o := Options{}
				if r == 1 {
					o = other
				}
				_, errs[r] = New(t.Context(), all[r], o)
				return nil
			})
			for r, err := range errs {
				if e, ok := errors.AsType[*InconsistentError](err); !ok || e.Fields[0].Field != field {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			for _, f := range all {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestCheckFirst counts sent messages: the first call with given arguments is compared, and
// with "on" every call.
func TestCheckFirst(t *testing.T) {
	for check, want := range map[Check][3]uint64{CheckOff: {}, CheckFirst: {48, 0, 0}, CheckAll: {48, 48, 48}} {
		t.Run(string(check), func(t *testing.T) {
			kit.Check(t)
			w, faults := newFaulty(t, 2, Options{Check: check, Algorithm: plan.Ring})
			var sent [3]uint64
			for i := range sent {
				before := faults.Sent(0, 1)
				allReduce(t, w, 1000)
				sent[i] = faults.Sent(0, 1) - before - 2*headSize - 4000
			}
			if sent != want {
				t.Errorf("sent %v bytes for comparing, not %v", sent, want)
			}
		})
	}
}

// allReduce reduces numbers of all ranks, and returns the result.
func allReduce(t *testing.T, w *ranks, count uint64) []byte {
	t.Helper()
	results := make([]domain.View, len(w.groups))
	sources := make([]domain.View, len(w.groups))
	for r := range w.groups {
		sources[r], results[r] = w.floats(r, count), w.floats(99, count)
	}
	if err := together(len(w.groups), func(r int) error {
		return w.groups[r].AllReduce(t.Context(), results[r], sources[r], elem.Sum)
	}); err != nil {
		t.Fatal(err)
	}
	for r := range results {
		if !bytes.Equal(hostBytes(results[r]), hostBytes(results[0])) {
			t.Fatalf("rank %d has another result than rank 0", r)
		}
	}
	return bytes.Clone(hostBytes(results[0]))
}

// TestRetry cuts a link after each number of bytes of a call: the call is repeated, and
// gives the same bits.
func TestRetry(t *testing.T) {
	// Large enough that a rank with its result waits for the others, or with Settle set to
	// do so.
	for count, settle := range map[uint64]devices.Size{(4<<20)/4 + 1: 0, 3000: 1} {
		for _, inPlace := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, in place %v", count, inPlace), func(t *testing.T) {
				kit.Check(t)
				retry(t, count, inPlace, Options{Algorithm: plan.Ring, KeepSource: true, Settle: settle})
			})
		}
	}
}

func retry(t *testing.T, count uint64, inPlace bool, o Options) {
	t.Helper()
	const n = 3
	reports := make([]*Report, n)
	w, faults := newFaulty(t, n, o)
	for r, g := range w.groups {
		g.opts.Observe = func(rep *Report) { reports[r] = rep }
	}
	want := allReduce(t, w, count)
	begin := faults.Sent(0, 1)
	allReduce(t, w, count)
	whole := faults.Sent(0, 1) - begin
	for _, at := range []uint64{1, 7, 16, 17, 4000, whole / 2, whole - 40, whole - 33} {
		faults.CutAfter(0, 1, at)
		got, err := again(t, w, count, inPlace)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut at byte %d: %v, or other bits", at, err)
		}
		for r, rep := range reports {
			if rep.Retries != 1 {
				t.Errorf("cut at byte %d: rank %d has tried again %d times", at, r, rep.Retries)
			}
		}
	}
	if got, err := again(t, w, count, inPlace); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after all cuts: %v", err)
	}
}

// again reduces as allReduce does, optionally in place.
func again(t *testing.T, w *ranks, count uint64, inPlace bool) ([]byte, error) {
	t.Helper()
	results := make([]domain.View, len(w.groups))
	err := together(len(w.groups), func(r int) error {
		source := w.floats(r, count)
		results[r] = source
		if !inPlace {
			results[r] = w.floats(99, count)
		}
		return w.groups[r].AllReduce(t.Context(), results[r], source, elem.Sum)
	})
	for r := range results {
		if err == nil && !bytes.Equal(hostBytes(results[r]), hostBytes(results[0])) {
			t.Fatalf("rank %d has another result than rank 0", r)
		}
	}
	return hostBytes(results[0]), err
}

// TestNotAgain: calls that may not be repeated fail: every rank gets an error, and the next
// call works.
func TestNotAgain(t *testing.T) {
	for name, c := range map[string]struct {
		o       Options
		inPlace bool
		cuts    int
		because string
	}{
		"overwritten": {Options{}, true, 1, "KeepSource"},
		"never":       {Options{Retry: -1}, false, 1, "tried 1 times"},
		"too often":   {Options{Retry: 2}, false, 3, "tried 3 times"},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			c.o.Algorithm = plan.Ring
			w, faults := newFaulty(t, 3, c.o)
			want := allReduce(t, w, 3000)
			faults.CutEach(0, 1, 3000, c.cuts)
			_, err := again(t, w, 3000, c.inPlace)
			if !errors.Is(err, ErrRetry) || !strings.Contains(err.Error(), c.because) || strings.Count(err.Error(), "is not repeated") != 3 {
				t.Fatalf("%v", err)
			}
			if got, err := again(t, w, 3000, c.inPlace); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// TestLate: a rank does not come to a call. The others name it, also those that wait for
// another rank. When it comes, it learns that the others have given up; the next call
// works.
func TestLate(t *testing.T) {
	for _, algorithm := range []plan.Algorithm{plan.Ring, plan.Direct} {
		t.Run(string(algorithm), func(t *testing.T) {
			kit.Check(t)
			core, logs := observer.New(zap.WarnLevel)
			w, _ := newFaulty(t, 4, Options{
				Algorithm: algorithm, Timeout: 300 * time.Millisecond, Stuck: 50 * time.Millisecond, Logger: zap.New(core),
			})
			allReduce(t, w, 1000)
			views := make([]domain.View, 4)
			for r := range views {
				views[r] = w.floats(r, 1000)
			}
			reduce := func(r int) error { return w.groups[r].AllReduce(t.Context(), views[r], views[r], elem.Sum) }
			checkMissing(t, without(2, 4, reduce), 2)
			if logs.FilterMessage("rank has been waiting for others").Len() == 0 {
				t.Error("nobody has told that he waits")
			}
			// Rank 2 comes to the call that the others have given up. They make the next
			// one.
			err := together(4, func(r int) error {
				if r == 2 {
					if err := reduce(r); !errors.Is(err, ErrRetry) {
						t.Errorf("rank 2 comes late: %v", err)
					}
				}
				return reduce(r)
			})
			if err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// without runs do as each of n ranks except one.
func without(but, n int, do func(r int) error) map[int]error {
	errs := make([]error, n)
	_ = together(n, func(r int) error {
		if r != but {
			errs[r] = do(r)
		}
		return nil
	})
	out := map[int]error{}
	for r, err := range errs {
		if r != but {
			out[r] = err
		}
	}
	return out
}

// checkMissing checks that all ranks have timed out waiting for the missing one.
func checkMissing(t *testing.T, errs map[int]error, missing plan.Rank) {
	t.Helper()
	for r, err := range errs {
		e, ok := errors.AsType[*TimeoutError](err)
		if !ok || !errors.Is(err, ErrTimeout) || !slices.Equal(e.Missing, []plan.Rank{missing}) || e.Call == 0 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestLateBarrier: a rank comes late to a Barrier. The others, which have timed out, call
// it again, and no rank is out of step.
func TestLateBarrier(t *testing.T) {
	for _, algorithm := range []plan.Algorithm{plan.Dissemination, plan.Direct} {
		t.Run(string(algorithm), func(t *testing.T) {
			kit.Check(t)
			w, _ := newFaulty(t, 4, Options{Algorithm: algorithm, Timeout: 100 * time.Millisecond})
			if err := together(4, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				checkMissing(t, without(3, 4, func(r int) error { return w.groups[r].Barrier(t.Context()) }), 3)
			}
			if err := together(4, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
				t.Fatal(err)
			}
			allReduce(t, w, 1000)
		})
	}
}

// TestLateOver is TestLateBarrier, and a call that times out, between ranks of a domain.
func TestLateOver(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits")
	}
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams %v", streams), func(t *testing.T) {
			all := overDomain(t, 3, fabric.Options{Streams: streams})
			w := groupsOf(t, all, Options{Timeout: 3 * time.Second})
			barrier := func(r int) error { return w.groups[r].Barrier(t.Context()) }
			checkMissing(t, without(1, 3, barrier), 1)
			if err := together(3, barrier); err != nil {
				t.Fatal(err)
			}
			views := make([]domain.View, 3)
			for r := range views {
				views[r] = w.floats(r, 100_000)
			}
			reduce := func(r int) error { return w.groups[r].AllReduce(t.Context(), views[r], views[r], elem.Sum) }
			checkMissing(t, without(2, 3, reduce), 2)
			err := together(3, func(r int) error {
				if r == 2 {
					if err := reduce(r); !errors.Is(err, ErrRetry) {
						t.Errorf("rank 2 comes late: %v", err)
					}
				}
				return reduce(r)
			})
			if err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// TestKilled: a rank ends in a call. The others name it, in that call and later.
func TestKilled(t *testing.T) {
	for _, algorithm := range []plan.Algorithm{plan.Ring, plan.Direct} {
		t.Run(string(algorithm), func(t *testing.T) {
			kit.Check(t)
			all, err := fabric.Local(3)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range all {
				t.Cleanup(func() { _ = f.Close() })
			}
			w := groupsOf(t, all, Options{Algorithm: algorithm})
			allReduce(t, w, 1000)
			for range 2 {
				errs := make([]error, 3)
				_ = together(3, func(r int) error {
					if r == 1 {
						return all[1].Close()
					}
					v := w.floats(r, 1000)
					errs[r] = w.groups[r].AllReduce(t.Context(), v, v, elem.Sum)
					return nil
				})
				for _, r := range []int{0, 2} {
					e, ok := errors.AsType[*fabric.MissingError](errs[r])
					if !ok || !slices.Equal(e.Ranks, []plan.Rank{1}) || !errors.Is(errs[r], fabric.ErrLink) {
						t.Errorf("rank %d: %v", r, errs[r])
					}
				}
			}
		})
	}
}

// TestGarbage modifies bytes of headers and of control messages.
func TestGarbage(t *testing.T) {
	for at := range uint64(headSize) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			kit.Check(t)
			w, faults := newFaulty(t, 2, Options{Algorithm: plan.Ring, Check: CheckOff})
			want := allReduce(t, w, 1000)
			faults.FlipAfter(0, 1, at)
			got, err := again(t, w, 1000, false)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("a header with another byte: %v", err)
			}
		})
	}
}

// TestSuspend suspends and resumes.
func TestSuspend(t *testing.T) {
	kit.Check(t)
	w, _ := newFaulty(t, 3, Options{})
	want := allReduce(t, w, 1000)
	for range 2 {
		if err := together(3, func(r int) error { return w.groups[r].Suspend(t.Context()) }); err != nil {
			t.Fatal(err)
		}
	}
	for r, g := range w.groups {
		if err := g.Barrier(t.Context()); !errors.Is(err, ErrSuspended) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if err := together(3, func(r int) error { return w.groups[r].Resume(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	if got := allReduce(t, w, 1000); !bytes.Equal(got, want) {
		t.Error("other bits after Resume")
	}
}

// TestSuspendMixed: one rank suspends while the others reduce.
func TestSuspendMixed(t *testing.T) {
	kit.Check(t)
	w, _ := newFaulty(t, 3, Options{Algorithm: plan.Ring})
	err := together(3, func(r int) error {
		if r == 0 {
			return w.groups[r].Suspend(t.Context())
		}
		v := w.floats(r, 100)
		return w.groups[r].AllReduce(t.Context(), v, v, elem.Sum)
	})
	if !errors.Is(err, ErrInconsistent) || !strings.Contains(err.Error(), "suspend") || strings.Count(err.Error(), "disagrees") != 3 {
		t.Errorf("%v", err)
	}
	allReduce(t, w, 1000)
}

// TestClose closes a group while a call waits.
func TestClose(t *testing.T) {
	for _, algorithm := range []plan.Algorithm{plan.Ring, plan.Direct} {
		t.Run(string(algorithm), func(t *testing.T) {
			kit.Check(t)
			w, _ := newFaulty(t, 2, Options{Algorithm: algorithm, Stuck: time.Hour})
			allReduce(t, w, 1000)
			v := w.floats(0, 1000)
			over := make(chan error)
			go func() { over <- w.groups[0].AllReduce(context.Background(), v, v, elem.Sum) }()
			kit.Eventually(t, 10*time.Second, func() bool { return w.groups[0].guard.watch.peers.Load() != 0 })
			if err := w.groups[0].Close(); err != nil {
				t.Error(err)
			}
			if err := <-over; !errors.Is(err, ErrClosed) {
				t.Errorf("the call: %v", err)
			}
			if err := w.groups[0].Barrier(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("a call after that: %v", err)
			}
		})
	}
}

// TestCancel: a caller stops waiting. The group can continue when all ranks come together
// again.
func TestCancel(t *testing.T) {
	kit.Check(t)
	w, _ := newFaulty(t, 2, Options{Algorithm: plan.Ring})
	want := allReduce(t, w, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	v := w.floats(0, 1000)
	over := make(chan error)
	go func() { over <- w.groups[0].AllReduce(ctx, v, v, elem.Sum) }()
	kit.Eventually(t, 10*time.Second, func() bool { return w.groups[0].guard.watch.peers.Load() != 0 })
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the call: %v", err)
	}
	// Rank 1 makes the call that rank 0 has given up, and the next one.
	err := together(2, func(r int) error {
		for {
			v := w.floats(r, 1000)
			err := w.groups[r].AllReduce(t.Context(), v, v, elem.Sum)
			if r == 1 && errors.Is(err, ErrRetry) {
				continue
			}
			if err == nil && !bytes.Equal(hostBytes(v), want) {
				err = errors.New("other bits")
			}
			return err
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestVerify finds the ranks and blocks that differ.
func TestVerify(t *testing.T) {
	kit.Check(t)
	const n, size = 4, 4*uint64(VerifyBlock) + 4096
	w, _ := newFaulty(t, n, Options{})
	verify := func(change func(views []domain.View)) *Difference {
		t.Helper()
		views := make([]domain.View, n)
		for r := range views {
			views[r] = w.floats(0, size/4)
		}
		change(views)
		out := make([]*Difference, n)
		if err := together(n, func(r int) (err error) {
			out[r], err = w.groups[r].Verify(t.Context(), views[r])
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for r, d := range out {
			if fmt.Sprint(d) != fmt.Sprint(out[0]) {
				t.Errorf("rank %d says %v, rank 0 %v", r, d, out[0])
			}
		}
		return out[0]
	}
	if d := verify(func([]domain.View) {}); d != nil {
		t.Errorf("the same memory: %v", d)
	}
	d := verify(func(v []domain.View) { hostBytes(v[2])[3*VerifyBlock+17] ^= 1 })
	if d == nil || len(d.Blocks) != 1 || d.Blocks[0].Block != 3 || !slices.Equal(d.Blocks[0].Ranks, []plan.Rank{2}) {
		t.Errorf("a byte of rank 2 in block 3: %v", d)
	}
	d = verify(func(v []domain.View) {
		hostBytes(v[0])[0] ^= 1
		hostBytes(v[3])[4*VerifyBlock+4095] ^= 1
	})
	if d == nil || len(d.Blocks) != 2 || !slices.Equal(d.Blocks[0].Ranks, []plan.Rank{0}) || d.Blocks[1].Block != 4 ||
		d.Blocks[1].Range.Len != 4096 || !slices.Equal(d.Blocks[1].Ranks, []plan.Rank{3}) {
		t.Errorf("two bytes: %v", d)
	}
	d = verify(func(v []domain.View) { v[1] = w.floats(0, 100) })
	if d == nil || len(d.Sizes) != n || d.Sizes[1] != 400 {
		t.Errorf("another size: %v", d)
	}
}

// TestIndependent: a rank of one group does not come, while another group continues.
func TestIndependent(t *testing.T) {
	kit.Check(t)
	stalled, _ := newFaulty(t, 2, Options{Algorithm: plan.Ring})
	allReduce(t, stalled, 1000)
	other, _ := newFaulty(t, 2, Options{Algorithm: plan.Ring})
	v := stalled.floats(0, 1000)
	over := make(chan error)
	go func() { over <- stalled.groups[0].AllReduce(context.Background(), v, v, elem.Sum) }()
	kit.Eventually(t, 10*time.Second, func() bool { return stalled.groups[0].guard.watch.peers.Load() != 0 })
	for range 100 {
		allReduce(t, other, 1000)
	}
	select {
	case err := <-over:
		t.Errorf("the stalled call is over: %v", err)
	default:
	}
	w := stalled.floats(1, 1000)
	if err := errors.Join(stalled.groups[1].AllReduce(t.Context(), w, w, elem.Sum), <-over); err != nil {
		t.Error(err)
	}
}

// TestBusy: a rank that works on its own for long, without waiting for another rank, does
// not time out.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Timeout: time.Second}.withDefaults()
		w := newWatchdog(localFabrics(t, 2)[0], &o)
		w.start()
		defer w.close()
		name := "call"
		w.begin(1, &name)
		<-time.After(10 * time.Second)
		if err := w.stop(); err != nil {
			t.Fatalf("a rank that does not wait: %v", err)
		}
		for range 100 { // enter and leave waits without progress
			w.waits.Add(1)
			<-time.After(20 * time.Millisecond)
		}
		if err := w.stop(); !errors.Is(err, ErrTimeout) {
			t.Errorf("a rank that waits: %v", err)
		}
	})
}
