package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// TestLent: ranks overwrite the memory that they have sent as soon as their call returns.
// Only the settling at the end of calls that send without copying ensures that the others
// have received it by then.
func TestLent(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		for kind, algorithm := range map[plan.Kind]plan.Algorithm{
			plan.AllReduce: plan.Ring, plan.AllGather: plan.Ring, plan.Broadcast: plan.Chain, plan.AllToAll: plan.Pairwise,
		} {
			t.Run(fmt.Sprintf("%d/%s", n, kind), func(t *testing.T) {
				t.Parallel()
				lent(t, n, kind, algorithm)
			})
		}
	}
}

func lent(t *testing.T, n int, kind plan.Kind, algorithm plan.Algorithm) {
	t.Helper()
	o := Options{Costs: someCosts(), Algorithm: algorithm}
	w := groupsOf(t, overDomain(t, n, fabric.Options{Streams: true}), o)
	task := plan.Task{Kind: kind, Ranks: n, Type: elem.Int32, Count: uint64(n)*zeroCopySize/4 + 5, InPlace: kind != plan.AllToAll}
	if kind.Combines() {
		task.Op = elem.Sum
	}
	const steps = 4
	sources, wants := make([][][]byte, steps), make([][][]byte, steps)
	for i := range steps {
		for r := range plan.Rank(n) {
			sources[i] = append(sources[i], sample(task.Type, task.SourceLen(r), uint64(100*i+int(r))))
		}
		for r := range plan.Rank(n) {
			wants[i] = append(wants[i], reference(task, r, sources[i]))
		}
	}
	err := together(n, func(r int) error {
		source, result := w.views(&task, r, w.buffer)
		c := &Call{Kind: kind, Source: source, Result: result, Op: task.Op}
		given := source.Buffer().Host(source.Offset(), source.Size())
		var wrong error // the others need us to the end
		got := result.Buffer().Host(result.Offset(), result.Size())
		for i := range steps {
			copy(given, sources[i][r])
			if err := w.groups[r].Do(t.Context(), c); err != nil {
				return err
			}
			if !bytes.Equal(got, wants[i][r]) && wrong == nil {
				wrong = fmt.Errorf("step %d: rank %d has another result", i, r)
			}
			clear(got)
			clear(given)
		}
		return wrong
	})
	if err != nil {
		t.Error(err)
	}
	for r, g := range w.groups {
		g.mu.Lock()
		if p := g.running.prepared; p == nil || p.stream == nil || !p.stream.zeroCopy {
			t.Errorf("rank %d has lent nothing", r)
		}
		g.mu.Unlock()
	}
}

// TestLentGivenUp: the root of a broadcast gives up when it has sent everything, and
// overwrites it: a rank that receives these bytes only then must not return them as a
// result.
func TestLentGivenUp(t *testing.T) {
	t.Parallel()
	w := groupsOf(t, overDomain(t, 2, fabric.Options{Streams: true}), Options{Costs: someCosts(), Algorithm: plan.Chain, Check: CheckOff})
	large, v := broadcastOf(w, 4*zeroCopySize), broadcastOf(w, 2*zeroCopySize)
	for range 4 { // the sockets hold more each time
		if err := together(2, func(r int) error { return w.groups[r].Broadcast(t.Context(), large[r], 0) }); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Clone(hostBytes(v[0]))
	switch err := w.leave(0, v[0]); {
	case errors.Is(err, context.DeadlineExceeded):
		t.Skip("the sockets hold less than it sends")
	case !errors.Is(err, context.Canceled):
		t.Fatalf("the root has given up: %v", err)
	}
	clear(hostBytes(v[0]))
	switch err := w.leave(1, v[1]); {
	case err == nil && !bytes.Equal(hostBytes(v[1]), want):
		t.Error("rank 1 has another result, and no error")
	case err != nil && !errors.Is(err, context.Canceled):
		t.Error(err)
	}
}

// broadcastOf returns a view of each rank.
func broadcastOf(w *ranks, n uint64) []domain.View {
	return []domain.View{w.floats(0, n/4), w.floats(1, n/4)}
}

// leave has a rank broadcast, and give up while it waits for the other ranks at the end.
func (w *ranks) leave(r int, v domain.View) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	g := w.groups[r]
	g.watch.step.Store(0)
	done := make(chan error, 1)
	go func() { done <- g.Broadcast(ctx, v, 0) }()
	for {
		select {
		case err := <-done:
			return err
		default:
			runtime.Gosched()
		}
		if g.watch.step.Load() == -int64(forEnd) {
			cancel()
		}
	}
}
