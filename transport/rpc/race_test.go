package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// content is a handler that answers with n bytes of a seed, after a while, or
// fails: the body is the seed, n, and the time to wait in microseconds.
func content(ctx context.Context, _ Caller, body []byte) ([]byte, error) {
	seed, n := binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(binary.LittleEndian.Uint64(body[16:])) * time.Microsecond):
	}
	if n%7 == 0 {
		return nil, fmt.Errorf("seed %d", seed)
	}
	return kit.Bytes(seed, 0, int(n)), nil
}

// askContent requests content, and checks the answer; late reports a request that
// failed for an acceptable reason.
func askContent(ctx context.Context, e *Endpoint, to wire.Rank, rnd *rand.Rand) (late bool, err error) {
	seed, n := rnd.Uint64(), uint64(rnd.IntN(1000))
	if rnd.IntN(10) == 0 {
		n = uint64(rnd.IntN(MaxAnswer + 1))
	}
	body := binary.LittleEndian.AppendUint64(nil, seed)
	body = binary.LittleEndian.AppendUint64(body, n)
	body = binary.LittleEndian.AppendUint64(body, uint64(rnd.IntN(2000)))
	if rnd.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Microsecond)
		defer cancel()
	}
	got, err := e.Call(ctx, to, Method(1+rnd.IntN(2)), body)
	var failed *Error
	switch {
	case err == nil && (n%7 == 0 || !bytes.Equal(got, kit.Bytes(seed, 0, int(n)))):
		return false, fmt.Errorf("%d bytes for seed %d, not %d", len(got), seed, n)
	case err == nil:
		return false, nil
	case errors.As(err, &failed) && failed.Code == CodeUnknown && n%7 == 0 && failed.Text == fmt.Sprintf("seed %d", seed):
		return false, nil
	case failed != nil && failed.Code == CodeBusy:
		return true, nil // until its deadline, which may be short
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, control.ErrDisconnected), errors.Is(err, comm.ErrNotConnected):
		return true, nil
	default:
		return false, fmt.Errorf("seed %d, %d bytes: %w", seed, n, err)
	}
}

// Many goroutines call each other at once while their session is renewed
// repeatedly: every answer belongs to its request, and each session's end is
// reported once.
func TestManyAtOnce(t *testing.T) {
	kit.Check(t)
	var ends sync.Map
	var doubles atomic.Uint64
	options := func() Options {
		return Options{
			Handlers: map[Method]Handler{1: content, 2: content}, Lanes: map[Method]Lane{2: 1}, MaxConcurrent: 4, MaxPending: 8,
			OnEnd: func(c Caller) {
				if _, again := ends.LoadOrStore(c, true); again {
					doubles.Add(1)
				}
			},
		}
	}
	a, b := newNode(t, 0, options()), newNode(t, 1, options())
	connect(t, b, a)
	var asks sync.WaitGroup
	var late, good atomic.Uint64
	for i := range 24 {
		asks.Go(func() {
			l := asker{from: a, to: b, rnd: rand.New(rand.NewPCG(uint64(i), 6)), late: &late, good: &good}
			if i%2 == 0 {
				l.from, l.to = b, a
			}
			l.ask(t, i == 0)
		})
	}
	asks.Wait()
	if good.Load() == 0 || late.Load() == 0 || doubles.Load() != 0 {
		t.Errorf("%d answers, %d without one, %d ends told twice", good.Load(), late.Load(), doubles.Load())
	}
	t.Logf("%d answers, %d without one", good.Load(), late.Load())
}

// asker sends many requests, one after another.
type asker struct {
	from, to   *node
	rnd        *rand.Rand
	late, good *atomic.Uint64
}

// ask sends requests, and ends the session now and then if cuts is set.
func (l *asker) ask(t *testing.T, cuts bool) {
	t.Helper()
	for n := range 200 {
		if cuts && n%20 == 19 {
			l.again(t)
		}
		if err := l.from.comm.Await(t.Context(), l.to.comm.Rank()); err != nil {
			t.Error(err)
		}
		missed, err := askContent(t.Context(), l.from.Endpoint, l.to.comm.Rank(), l.rnd)
		if err != nil {
			t.Error(err)
			return
		}
		if missed {
			l.late.Add(1)
		} else {
			l.good.Add(1)
		}
	}
}

// again ends the session and makes another one.
func (l *asker) again(t *testing.T) {
	t.Helper()
	// The second session may have been noticed, or not.
	_, _ = l.to.comm.Disconnect(l.from.comm.Rank()), l.from.comm.Disconnect(l.to.comm.Rank())
	if err := l.from.comm.Connect(t.Context(), l.to.comm.Rank(), l.to.at); err != nil {
		t.Error(err)
	}
}

func BenchmarkCall(b *testing.B) {
	asks, _ := asked(b, Options{Handlers: map[Method]Handler{
		1: echo,
		2: func(context.Context, Caller, []byte) ([]byte, error) { return make([]byte, MaxAnswer), nil },
	}})
	for _, c := range []struct {
		name string
		m    Method
		n    int
	}{{"64 B", 1, 64}, {"16 KiB", 1, 16 << 10}, {"1 MiB answer", 2, 0}} {
		body := make([]byte, c.n)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := asks.Call(b.Context(), 0, c.m, body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+" at once", func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := asks.Call(b.Context(), 0, c.m, body); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
