package fusion_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fusion"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// errMixed reports ranks that have made different calls: a real group would hang, or
// combine unrelated data.
// reduce what does not belong together.
var errMixed = errors.New("ranks have made different calls")

// hub synchronizes the ranks of a fake group in each call.
type hub struct {
	n int

	mu sync.Mutex
	// round is the call in progress; it ends when all ranks have come.
	// +checklocks:mu
	round *round
	// +checklocks:mu
	calls []string
}

// round is one call of all ranks.
type round struct {
	calls []call
	came  int
	over  chan struct{}
	err   error
}

// call is the request of one rank.
type call struct {
	text           string
	result, source []byte
}

// world makes the ranks of a fake group.
func world(n int) (*hub, []*rank) {
	h := &hub{n: n, round: newRound(n)}
	ranks := make([]*rank, n)
	for i := range ranks {
		ranks[i] = &rank{hub: h, me: i}
	}
	return h, ranks
}

func newRound(n int) *round { return &round{calls: make([]call, n), over: make(chan struct{})} }

// meet makes a call of a rank; the last rank to come executes run for all.
func (h *hub) meet(ctx context.Context, me int, c call, run func([]call) error) error {
	h.mu.Lock()
	r := h.round
	r.calls[me] = c
	if r.came++; r.came == h.n {
		for _, other := range r.calls {
			if other.text != c.text {
				r.err = fmt.Errorf("%q and %q: %w", c.text, other.text, errMixed)
			}
		}
		if r.err == nil {
			r.err = run(r.calls)
		}
		h.calls = append(h.calls, c.text)
		h.round = newRound(h.n)
		close(r.over)
	}
	h.mu.Unlock()
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seen returns the calls that were made.
func (h *hub) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// rank is a rank of a fake group. Its results are correct, and take no time.
type rank struct {
	hub *hub
	me  int
}

func (r *rank) Rank() plan.Rank { return plan.Rank(r.me) }
func (r *rank) Size() int       { return r.hub.n }

func (r *rank) Share(context.Context, *region.Buffer) (bool, error) { return false, nil }

func (r *rank) Unshare(*region.Buffer) error { return nil }

func (r *rank) AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error {
	c := call{text: fmt.Sprintf("allreduce %d %s", source.Count(), op), result: host(result), source: host(source)}
	return r.hub.meet(ctx, r.me, c, func(all []call) error {
		sum := bytes.Clone(all[0].source)
		for _, other := range all[1:] {
			if err := elem.Combine(op, source.Type(), sum, sum, other.source); err != nil {
				return err
			}
		}
		for _, other := range all {
			copy(other.result, sum)
		}
		return nil
	})
}

func (r *rank) AllGather(ctx context.Context, result, source domain.View) error {
	c := call{text: fmt.Sprintf("allgather %d", result.Count()), result: host(result), source: host(source)}
	return r.hub.meet(ctx, r.me, c, func(all []call) error {
		var whole []byte
		for _, other := range all {
			whole = append(whole, other.source...)
		}
		for _, other := range all {
			copy(other.result, whole)
		}
		return nil
	})
}

func (r *rank) Broadcast(ctx context.Context, v domain.View, root plan.Rank) error {
	c := call{text: fmt.Sprintf("broadcast %d %d", v.Count(), root), result: host(v)}
	return r.hub.meet(ctx, r.me, c, func(all []call) error {
		for _, other := range all {
			copy(other.result, all[root].result)
		}
		return nil
	})
}

// host is the bytes of a view.
func host(v domain.View) []byte { return v.Buffer().Host(v.Offset(), v.Size()) }

// memory is a table and its buffers.
type memory struct {
	t     testing.TB
	table *region.Table
}

func newMemory(t testing.TB) memory {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := region.NewTable(e)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if live := table.Stats().Live; live != 0 {
			t.Errorf("%d registrations are left", live)
		}
	})
	return memory{t, table}
}

// tensors makes int32 tensors of these sizes in bytes: element i of tensor k has
// a value of its own at each rank.
func (m memory) tensors(rank int, sizes []uint64) []domain.View {
	m.t.Helper()
	out := make([]domain.View, len(sizes))
	for k, size := range sizes {
		b, err := m.table.Register(make([]byte, max(size, 4)))
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { m.close(b) })
		v, err := domain.NewView(b, 0, elem.Int32, size/4)
		if err != nil {
			m.t.Fatal(err)
		}
		p := host(v)
		for i := range size / 4 {
			put(p[4*i:], value(rank, k, int(i)))
		}
		out[k] = v
	}
	return out
}

func (m memory) close(b *region.Buffer) {
	m.t.Helper()
	if err := b.Close(context.Background()); err != nil {
		m.t.Error(err)
	}
}

// value returns an element of a rank's tensor.
func value(rank, tensor, i int) uint32 { return uint32(rank*7919 + tensor*104729 + i*31 + 1) }

func put(p []byte, v uint32) { p[0], p[1], p[2], p[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24) }

func get(p []byte) uint32 {
	return uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24
}

// checkSums checks that tensors are the sums of n ranks' tensors.
func checkSums(t testing.TB, n int, tensors []domain.View) {
	t.Helper()
	for k, v := range tensors {
		p := host(v)
		for i := range len(p) / 4 {
			want := uint32(0)
			for r := range n {
				want += value(r, k, i)
			}
			if got := get(p[4*i:]); got != want {
				t.Errorf("element %d of tensor %d is %d, not %d", i, k, got, want)
				return
			}
		}
	}
}

// fusers makes a fuser for each rank, and records the buckets that each has reduced.
func fusers(t testing.TB, m memory, ranks []*rank, o fusion.Options) ([]*fusion.Fuser, []*record) {
	t.Helper()
	o.Type = elem.Int32
	var out []*fusion.Fuser
	var seen []*record
	for _, r := range ranks {
		rec := &record{}
		own := o
		own.Observe = rec.add
		f, err := fusion.New(context.Background(), r, m.table, own)
		if err != nil {
			t.Fatal(err)
		}
		out, seen = append(out, f), append(seen, rec)
	}
	return out, seen
}

// record keeps the buckets of a rank.
type record struct {
	mu sync.Mutex
	// +checklocks:mu
	all []fusion.Bucket
}

func (r *record) add(b fusion.Bucket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, b)
}

func (r *record) get() []fusion.Bucket {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// closeAll closes fusers as ranks do.
func closeAll(t testing.TB, all []*fusion.Fuser) {
	t.Helper()
	for r, err := range closeErrors(all) {
		if err != nil {
			t.Errorf("close rank %d: %v", r, err)
		}
	}
}

// resnet returns the sizes of the gradients in hcomm's own test.
func resnet() []uint64 {
	return []uint64{
		4096, 8257536, 8704, 8704, 4194304, 2560, 2560, 9437184, 2560, 2560,
		4194304, 8704, 8704, 4194304, 2560, 2560, 9437184, 2560, 2560, 4194304,
		8704, 8704, 8388608, 4194304, 2560, 2560, 9437184, 2560, 2560, 2097152,
	}
}

// scaled divides sizes, so that a test needs little memory.
func scaled(sizes []uint64, by uint64) []uint64 {
	out := make([]uint64, len(sizes))
	for i, s := range sizes {
		out[i] = s / by
	}
	return out
}
