package devicetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// checkConcurrent runs all operations in several goroutines at the same time, on disjoint,
// unaligned parts of one memory.
func checkConcurrent(e *env) {
	const workers = 6
	piece := e.within(workers*70001) / workers / 2
	shadow := Bytes(2*workers*piece, 1)
	mem := e.filled(shadow)
	var wg sync.WaitGroup
	for g := range workers {
		off := 2 * g * piece
		a, b := e.span(mem, off, piece), e.span(mem, off+piece, piece)
		mine := shadow[off : off+2*piece]
		wg.Go(func() {
			if err := e.work(a, b, mine, uint64(g)); err != nil {
				e.Errorf("worker %d: %v", g, err)
			}
		})
	}
	wg.Wait()
	e.holds(mem, shadow)
	e.release(mem)
}

// work runs rounds of operations on two adjacent spans, and keeps shadow up to date.
func (e *env) work(a, b devices.Span, shadow []byte, seed uint64) error {
	piece := len(shadow) / 2
	for round := range 15 {
		Pattern(shadow[:piece], seed*1000+uint64(round), 0)
		got := make([]byte, piece)
		err := errors.Join(
			e.dev.CopyIn(e.ctx, a, shadow[:piece]),
			e.dev.Copy(e.ctx, b, a),
			e.dev.CopyOut(e.ctx, got, b),
			e.dev.Fill(e.ctx, a, byte(round)),
		)
		copy(shadow[piece:], shadow[:piece])
		for i := range piece {
			shadow[i] = byte(round)
		}
		if err != nil {
			return err
		}
		if err := Compare(got, shadow[piece:]); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// checkCancelled calls every operation with a context that has ended.
func checkCancelled(e *env) {
	want := Bytes(1000, 1)
	mem, aside := e.filled(want), e.filled(want)
	before := e.used()
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	buf := make([]byte, 1000)
	refused, err := e.dev.Alloc(ctx, 1000)
	if err == nil {
		e.release(refused)
	}
	e.fails("Alloc", err, context.Canceled)
	e.fails("CopyIn", e.dev.CopyIn(ctx, mem.All(), buf), context.Canceled)
	e.fails("CopyOut", e.dev.CopyOut(ctx, buf, mem.All()), context.Canceled)
	e.fails("Copy", e.dev.Copy(ctx, mem.All(), aside.All()), context.Canceled)
	e.fails("Fill", e.dev.Fill(ctx, mem.All(), 1), context.Canceled)
	if now := e.used(); now != before {
		e.Errorf("%v in use, %v before", now, before)
	}
	e.holds(aside, want)
	e.ok(e.dev.CopyIn(e.ctx, mem.All(), want))
	e.holds(mem, want)
	e.release(mem, aside)
}

func checkEpoch(e *env) {
	epoch := e.dev.Epoch()
	if epoch == 0 {
		e.Error("epoch 0 is no epoch")
	}
	mem := e.filled(Bytes(100, 1))
	if mem.Epoch() != epoch || e.dev.Epoch() != epoch {
		e.Errorf("memory of epoch %d, device %d, at first %d", mem.Epoch(), e.dev.Epoch(), epoch)
	}
	e.release(mem)
}

func checkClose(e *env) {
	mem := e.filled(Bytes(1000, 1))
	kept := e.alloc(1000)
	e.ok(e.dev.Close())
	e.each(mem.All(), 1000, func(what string, err error) {
		e.fails(what, err, devices.ErrClosed)
	})
	_, err := e.dev.Alloc(e.ctx, 1)
	e.fails("Alloc", err, devices.ErrClosed)
	_, err = e.dev.Usage()
	e.fails("Usage", err, devices.ErrClosed)
	e.release(mem, kept)
	if e.dev.Info().Name == "" {
		e.Error("a closed device has no name")
	}
	if err := e.dev.Close(); err != nil {
		e.Errorf("closing twice: %v", err)
	}
}
