package devicetest

import (
	"bytes"
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

func (e *env) stream() devices.Stream {
	e.Helper()
	s, err := devices.NewStream(e.ctx, e.dev)
	e.ok(err)
	e.Cleanup(func() { e.ok(s.Close()) })
	return s
}

// checkStream queues work in order and checks it after an event, and after Sync.
func checkStream(e *env) {
	a, b := Bytes(e.within(100*kib), 1), Bytes(e.within(100*kib), 2)
	n := len(a) &^ 7
	a, b = a[:n], b[:n]
	x, y, z := e.filled(a), e.filled(b), e.alloc(n)
	s := e.stream()
	e.Logf("driven by the host: %v", s.HostDriven())
	e.ok(s.Fill(z.All(), 9))
	e.ok(s.Copy(z.All(), x.All()))
	e.ok(s.Reduce(z.All(), y.All(), elem.Int64, elem.Sum))
	e.ok(s.Copy(e.span(z, 0, n/2), e.span(y, n/2, n/2)))
	event, err := s.Record()
	e.ok(err)
	e.ok(event.Wait(e.ctx))
	want := bytes.Clone(a)
	e.ok(elem.Combine(elem.Sum, elem.Int64, want, want, b))
	copy(want[:n/2], b[n/2:])
	e.holds(z, want)
	e.ok(event.Wait(e.ctx))
	e.ok(event.Close())
	e.ok(s.Fill(z.All(), 3))
	e.ok(s.Sync(e.ctx))
	e.holds(z, bytes.Repeat([]byte{3}, n))
	// Memory is retained until the work is done.
	e.ok(s.Copy(x.All(), y.All()))
	e.release(x, y, z)
	e.ok(s.Sync(e.ctx))
}

// checkStreamOrder lets a compute stream and a communication stream wait for each other, and
// both for a signal of the host, many times.
func checkStreamOrder(e *env) {
	n := e.within(32 * kib)
	compute, comm := e.stream(), e.stream()
	grad, sent := e.alloc(n), e.alloc(n)
	for round := range 100 {
		begin := devices.NewSignal()
		e.ok(compute.After(begin))
		e.ok(compute.Fill(grad.All(), byte(round)))
		ready, err := compute.Record()
		e.ok(err)
		e.ok(comm.After(ready))
		e.ok(comm.Copy(sent.All(), grad.All()))
		over, err := comm.Record()
		e.ok(err)
		e.ok(compute.After(over))
		e.ok(compute.Fill(grad.All(), 0xee))
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		if err := over.Wait(ctx); !errors.Is(err, context.Canceled) {
			e.Fatalf("round %d: an event before its signal: %v", round, err)
		}
		begin.Set(nil)
		e.ok(over.Wait(e.ctx))
		e.holds(sent, bytes.Repeat([]byte{byte(round)}, n))
		e.ok(compute.Sync(e.ctx))
		e.holds(grad, bytes.Repeat([]byte{0xee}, n))
		for _, event := range []devices.Event{begin, ready, over} {
			e.ok(event.Close())
		}
	}
	e.release(grad, sent)
}

// checkStreamEventClosed closes an event for which other streams are about to wait, one stream
// of the device and one that the host drives: they still wait for it.
func checkStreamEventClosed(e *env) {
	want := Bytes(e.within(32*kib), 1)
	n := len(want)
	first, second := e.stream(), e.stream()
	third := devices.NewHostStream(e.ctx, e.dev)
	e.Cleanup(func() { e.ok(third.Close()) })
	x, y := e.filled(want), e.alloc(n)
	into := []*devices.Memory{e.alloc(n), e.alloc(n)}
	for range 20 {
		e.ok(first.Fill(y.All(), 0))
		e.ok(first.Sync(e.ctx))
		begin, later := devices.NewSignal(), devices.NewSignal()
		e.ok(first.After(begin))
		e.ok(first.Copy(y.All(), x.All()))
		ready, err := first.Record()
		e.ok(err)
		for i, s := range []devices.Stream{second, third} {
			e.ok(s.After(later))
			e.ok(s.After(ready))
			e.ok(s.Copy(into[i].All(), y.All()))
		}
		e.ok(ready.Close())
		begin.Set(nil)
		e.ok(first.Sync(e.ctx))
		later.Set(nil)
		for i, s := range []devices.Stream{second, third} {
			e.ok(s.Sync(e.ctx))
			e.holds(into[i], want)
		}
	}
	e.release(x, y, into[0], into[1])
}

// checkStreamFails makes work fail, by a signal and by the end of the stream.
func checkStreamFails(e *env) {
	want := Bytes(1000, 1)
	mem := e.filled(want)
	s := e.stream()
	outside := devices.Span{Mem: mem, Range: devices.Range{Off: 1, Len: 1000}}
	e.fails("fill outside", s.Fill(outside, 1), devices.ErrRange)
	e.fails("copy of less", s.Copy(mem.All(), e.span(mem, 0, 10)), devices.ErrRange)
	e.fails("reduce type", s.Reduce(mem.All(), mem.All(), elem.Bool, elem.Sum), elem.ErrType)
	e.ok(s.Sync(e.ctx))
	boom := errors.New("boom")
	broken := devices.NewSignal()
	e.ok(s.After(broken))
	e.ok(s.Fill(mem.All(), 1))
	event, err := s.Record()
	e.ok(err)
	broken.Set(boom)
	e.fails("an event behind a broken signal", event.Wait(e.ctx), boom)
	e.fails("what is behind a broken signal", s.Sync(e.ctx), boom)
	e.ok(event.Close())
	e.holds(mem, want)

	never, other := devices.NewSignal(), e.stream()
	e.ok(other.After(never))
	e.ok(other.Fill(mem.All(), 1))
	event, err = other.Record()
	e.ok(err)
	e.ok(other.Close())
	e.fails("an event of a closed stream", event.Wait(e.ctx), devices.ErrClosed)
	e.fails("fill of a closed stream", other.Fill(mem.All(), 1), devices.ErrClosed)
	_, err = other.Record()
	e.fails("record of a closed stream", err, devices.ErrClosed)
	e.ok(event.Close())
	e.holds(mem, want)
	e.release(mem)
}
