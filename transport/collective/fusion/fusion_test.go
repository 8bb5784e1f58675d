package fusion_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fusion"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// bucket returns an expected bucket.
func bucket(first, last fusion.Ticket, bytes devices.Size, why fusion.Reason) fusion.Bucket {
	return fusion.Bucket{First: first, Last: last, Bytes: bytes, Reason: why}
}

// checkBuckets compares the buckets of all ranks with the expected ones.
func checkBuckets(t *testing.T, seen []*record, want ...fusion.Bucket) {
	t.Helper()
	for rank, rec := range seen {
		got := slices.Clone(rec.get())
		for i := range got {
			got[i].Padded = 0
		}
		if !slices.Equal(got, want) {
			t.Errorf("rank %d has the buckets\n%v, not\n%v", rank, got, want)
		}
	}
}

// TestResnet is case 19: 30 tensors of 68113408 bytes, 32 MiB a bucket.
func TestResnet(t *testing.T) {
	kit.Check(t)
	m := newMemory(t)
	_, ranks := world(1)
	all, seen := fusers(t, m, ranks, fusion.Options{Window: -1})
	f := all[0]
	tensors := m.tensors(0, resnet())
	for _, v := range tensors {
		if _, err := f.Add(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Wait(t.Context(), 17); err != nil {
		t.Fatal(err)
	}
	checkBuckets(t, seen, bucket(1, 17, 39769088, fusion.Bytes))
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkBuckets(t, seen, bucket(1, 17, 39769088, fusion.Bytes), bucket(18, 30, 28344320, fusion.Flush))
	closeAll(t, all)
	checkSums(t, 1, tensors)
}

// TestJitter: three ranks add the same tensors at different times, with a window that may
// end anywhere: all cut alike, and the sums are correct.
func TestJitter(t *testing.T) {
	kit.Check(t)
	m := newMemory(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		_, ranks := world(n)
		all, seen := fusers(t, m, ranks, fusion.Options{Bytes: 32 << 10, Window: 5 * time.Millisecond})
		sizes := slices.Concat(scaled(resnet(), 1024), []uint64{0, 4, 128, 132}, scaled(resnet(), 512))
		tensors := make([][]domain.View, n)
		var group sync.WaitGroup
		for r, f := range all {
			tensors[r] = m.tensors(r, rounded(sizes))
			rng := rand.New(rand.NewPCG(1, uint64(r)))
			group.Go(func() {
				var last fusion.Ticket
				for _, v := range tensors[r] {
					<-time.After(time.Duration(rng.IntN(2000)) * time.Microsecond) // virtual time
					var err error
					if last, err = f.Add(v); err != nil {
						t.Error(err)
						return
					}
				}
				if err := f.Wait(context.Background(), last); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		closeAll(t, all)
		for r := range n {
			checkSums(t, n, tensors[r])
			if got, want := seen[r].get(), seen[0].get(); !slices.Equal(got, want) {
				t.Errorf("rank %d has other buckets than rank 0:\n%v\n%v", r, got, want)
			}
		}
		reasons := map[fusion.Reason]int{}
		for _, b := range seen[0].get() {
			reasons[b.Reason]++
		}
		if reasons[fusion.Window] == 0 || reasons[fusion.Bytes] == 0 {
			t.Errorf("buckets ended for these reasons only: %v", reasons)
		}
	})
}

// rounded rounds sizes down to multiples of an element.
func rounded(sizes []uint64) []uint64 {
	for i := range sizes {
		sizes[i] &^= 3
	}
	return sizes
}

// TestWindow is the end of case 19: three small tensors are reduced when the first one has
// waited for the window, and not earlier.
func TestWindow(t *testing.T) {
	kit.Check(t)
	m := newMemory(t)
	synctest.Test(t, func(t *testing.T) {
		_, ranks := world(2)
		all, seen := fusers(t, m, ranks, fusion.Options{})
		start := time.Now()
		tensors := [][]domain.View{m.tensors(0, []uint64{400, 4, 1200}), m.tensors(1, []uint64{400, 4, 1200})}
		for r, f := range all {
			for _, v := range tensors[r] {
				if _, err := f.Add(v); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, f := range all {
			if err := f.Wait(context.Background(), 3); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 5*time.Millisecond {
			t.Errorf("reduced after %v", took)
		}
		checkBuckets(t, seen, bucket(1, 3, 1604, fusion.Window))
		if got := seen[0].get()[0].Padded; got != 512+128+1200 {
			t.Errorf("padded to %d bytes", got)
		}
		closeAll(t, all)
		checkSums(t, 2, tensors[1])
	})
}

// TestLarge reduces a tensor larger than a bucket on its own, in place.
func TestLarge(t *testing.T) {
	kit.Check(t)
	m := newMemory(t)
	hub, ranks := world(2)
	all, seen := fusers(t, m, ranks, fusion.Options{Bytes: 1 << 10, Capacity: 1200, Window: -1})
	sizes := []uint64{400, 4096, 400, 800, 1024, 8, 8192, 8192}
	tensors := [][]domain.View{m.tensors(0, sizes), m.tensors(1, sizes)}
	for r, f := range all {
		for _, v := range tensors[r] {
			if _, err := f.Add(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeAll(t, all)
	checkSums(t, 2, slices.Concat(tensors[0]))
	checkBuckets(t, seen,
		bucket(1, 1, 400, fusion.Large), bucket(2, 2, 4096, fusion.Large),
		bucket(3, 3, 400, fusion.Full), bucket(4, 4, 800, fusion.Full), bucket(5, 5, 1024, fusion.Bytes),
		bucket(6, 6, 8, fusion.Large), bucket(7, 7, 8192, fusion.Large), bucket(8, 8, 8192, fusion.Large))
	if calls := hub.seen(); len(calls) != 8*3+2 {
		t.Errorf("%d calls of the group: %v", len(calls), calls)
	}
}

// TestStatic cuts by indexes, in several steps.
func TestStatic(t *testing.T) {
	kit.Check(t)
	m := newMemory(t)
	_, ranks := world(2)
	sizes := rounded(scaled(resnet(), 64))
	ends, err := fusion.ByPercent(sizes, []float64{20, 40, 40})
	if err != nil {
		t.Fatal(err)
	}
	all, seen := fusers(t, m, ranks, fusion.Options{Bytes: 1 << 20, Ends: ends})
	for range 2 {
		for r, f := range all {
			for _, v := range m.tensors(r, sizes) {
				if _, err := f.Add(v); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	closeAll(t, all)
	for rank := range seen {
		var last []fusion.Ticket
		for _, b := range seen[rank].get() {
			if b.Reason != fusion.Split {
				t.Errorf("rank %d cuts behind %d because of %v", rank, b.Last, b.Reason)
			}
			last = append(last, b.Last-1)
		}
		if !slices.Equal(last, []fusion.Ticket{6, 18, 29, 36, 48, 59}) {
			t.Errorf("rank %d cuts behind %v", rank, last)
		}
	}
}

// TestDifferent: one rank adds tensors that differ from the others': all ranks get the
// error, and no tensor of that bucket is modified.
func TestDifferent(t *testing.T) {
	for name, other := range map[string][]uint64{
		"size":   {400, 800, 404},
		"order":  {800, 400, 400},
		"fewer":  {400, 800},
		"more":   {400, 800, 400, 4},
		"larger": {400, 800, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			m := newMemory(t)
			_, ranks := world(3)
			all, _ := fusers(t, m, ranks, fusion.Options{Bytes: 1600, Capacity: 4000, Window: -1})
			first := make([]domain.View, len(all))
			for r, f := range all {
				sizes := []uint64{400, 800, 400}
				if r == 1 {
					sizes = other
				}
				tensors := m.tensors(r, sizes)
				first[r] = tensors[0]
				addAll(t, f, tensors)
			}
			for r, err := range closeErrors(all) {
				if !errors.Is(err, collective.ErrInconsistent) {
					t.Errorf("rank %d: %v", r, err)
				}
				if diff, ok := errors.AsType[*fusion.DifferentError](err); !ok || diff.Rank != 1 {
					t.Errorf("rank %d: %v does not name rank 1", r, err)
				}
				if p := host(first[r]); name != "more" && get(p) != value(r, 0, 0) {
					t.Errorf("rank %d: the first tensor was touched", r)
				}
			}
		})
	}
}

// addAll adds tensors; the other ranks may already have failed because they differ.
func addAll(t *testing.T, f *fusion.Fuser, tensors []domain.View) {
	t.Helper()
	for _, v := range tensors {
		if _, err := f.Add(v); err != nil && !errors.Is(err, collective.ErrInconsistent) {
			t.Fatal(err)
		}
	}
}

// closeErrors closes fusers as ranks do, and returns the error of each.
func closeErrors(all []*fusion.Fuser) []error {
	out := make([]error, len(all))
	var group sync.WaitGroup
	for i, f := range all {
		group.Go(func() { out[i] = f.Close(context.Background()) })
	}
	group.Wait()
	return out
}

// TestBroken: if the group fails, every Wait returns its error.
func TestBroken(t *testing.T) {
	kit.Check(t)
	m := newMemory(t)
	_, ranks := world(2)
	f, err := fusion.New(context.Background(), ranks[0], m.table, fusion.Options{Type: elem.Int32, Bytes: 400})
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := f.Add(m.tensors(0, []uint64{400})[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Wait(ctx, ticket); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	// The other rank never comes.
	if err := f.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	if err := f.Wait(context.Background(), ticket); err == nil {
		t.Error("wait after the end")
	}
	if _, err := f.Add(m.tensors(0, []uint64{4})[0]); !errors.Is(err, fusion.ErrClosed) {
		t.Errorf("add after the end: %v", err)
	}
}

// TestArguments checks that invalid arguments are rejected.
func TestArguments(t *testing.T) {
	kit.Check(t)
	m := newMemory(t)
	_, ranks := world(1)
	for name, o := range map[string]fusion.Options{
		"type":     {Type: elem.Complex64},
		"op":       {Type: elem.Float32, Op: 99},
		"capacity": {Type: elem.Float32, Bytes: 1 << 20, Capacity: 4},
		"leader":   {Type: elem.Float32, Leader: 1},
		"ends":     {Type: elem.Float32, Ends: []int{1, 4, 3}},
	} {
		if _, err := fusion.New(t.Context(), ranks[0], m.table, o); !errors.Is(err, fusion.ErrArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, _ := fusers(t, m, ranks, fusion.Options{Bytes: 4096})
	b, err := m.table.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	v, err := domain.All(b, elem.Float32)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all[0].Add(v); !errors.Is(err, fusion.ErrArgument) {
		t.Errorf("add of another type: %v", err)
	}
	if err := all[0].Wait(t.Context(), 1); !errors.Is(err, fusion.ErrArgument) {
		t.Errorf("wait for what was not added: %v", err)
	}
	closeAll(t, all)
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// lone is a group of one rank that allocates nothing.
type lone struct{ *rank }

func (lone) AllReduce(context.Context, domain.View, domain.View, elem.Op) error { return nil }
func (lone) AllGather(context.Context, domain.View, domain.View) error          { return nil }
func (lone) Broadcast(context.Context, domain.View, plan.Rank) error            { return nil }

// TestAllocs checks that steps with many tensors do not allocate.
func TestAllocs(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	kit.Check(t)
	m := newMemory(t)
	_, ranks := world(1)
	f, err := fusion.New(context.Background(), lone{ranks[0]}, m.table, fusion.Options{Type: elem.Int32, Bytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	tensors := m.tensors(0, slices.Repeat([]uint64{4096}, 100))
	step := func() {
		for _, v := range tensors {
			if _, err := f.Add(v); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		step()
	}
	runtime.GC()
	if n := testing.AllocsPerRun(20, step); n > 0 {
		t.Errorf("%v allocations in a step", n)
	}
	closeAll(t, []*fusion.Fuser{f})
}
