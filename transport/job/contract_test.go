package job_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// floats returns n numbers as the bytes of float32.
func floats(n int, at func(i int) float32) []byte {
	p := make([]byte, 0, 4*n)
	for i := range n {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(at(i)))
	}
	return p
}

// wrong reports the first float32 that differs from the expected one.
func wrong(p []byte, want func(i int) float32) error {
	for i := range len(p) / 4 {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:])); got != want(i) {
			return fmt.Errorf("number %d is %v, not %v", i, got, want(i))
		}
	}
	return nil
}

// numbered makes windows of count float32, 100·rank + i in each.
func numbered(ctx context.Context, j *job.Job, count int) (*job.Windows, error) {
	w, err := j.World().AllocWindows(ctx, devices.Size(4*count))
	if err == nil {
		copy(w.Local(), floats(count, func(i int) float32 { return float32(100*j.World().Rank() + i) }))
	}
	return w, err
}

// TestPeerRead has two ranks read each other's 100·rank + i, and add their own.
func TestPeerRead(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		const n, count = 2, 256
		all, ctx := start(t, n, tweak), within(t)
		each(t, n, func(rank int) error {
			w, err := numbered(ctx, all[rank], count)
			if err != nil {
				return err
			}
			got := make([]byte, 4*count)
			if err = errors.Join(all[rank].World().Barrier(ctx), w.Get(ctx, 1-rank, 0, got)); err != nil {
				return err
			}
			if err = elem.Combine(elem.Sum, elem.Float32, got, got, w.Local()); err != nil {
				return err
			}
			return errors.Join(wrong(got, func(i int) float32 { return float32(2*i + 100) }), w.Release(ctx))
		})
	})
}

// TestNotify: each rank puts 16384 numbers into the other's window and then increments a
// tag. A rank that has received the count sees the numbers, in each of some rounds.
func TestNotify(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		const n, rounds = 2, 20
		all := start(t, n, tweak)
		ctx := within(t)
		each(t, n, func(rank int) error {
			w, err := all[rank].World().AllocWindows(ctx, 4*partials)
			if err != nil {
				return err
			}
			for round := range rounds {
				if err := notify(ctx, all[rank], w, round); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
			}
			return w.Release(ctx)
		})
	})
}

const partials = 16384

// notify runs a round: rank 0 ends with 2s, and rank 1 with 1s, times the round.
func notify(ctx context.Context, j *job.Job, w *job.Windows, round int) error {
	rank, c := j.World().Rank(), j.Communicator()
	value := func(of int) float32 { return float32((of + 1) * (round + 1)) }
	if err := w.Put(ctx, 1-rank, 0, floats(partials, func(int) float32 { return value(rank) })); err != nil {
		return err
	}
	if err := c.SendTag(ctx, wire.Rank(1-rank), wire.Tag(round+1)); err != nil {
		return err
	}
	counter, err := c.RecvTag(ctx, wire.Rank(1-rank))
	if err != nil || counter != wire.Tag(round+1) {
		return fmt.Errorf("counter %d: %w", counter, err)
	}
	if err = wrong(w.Local(), func(int) float32 { return value(1 - rank) }); err != nil {
		return err
	}
	return j.World().Barrier(ctx)
}

// TestCollectiveOfWindows sums windows in place.
func TestCollectiveOfWindows(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		const n, count = 4, 256
		all, ctx := start(t, n, tweak), within(t)
		each(t, n, func(rank int) error {
			w, err := numbered(ctx, all[rank], count)
			if err != nil {
				return err
			}
			v, err := domain.NewView(w.Buffer(), 0, elem.Float32, count)
			if err != nil {
				return err
			}
			g, err := collective.New(ctx, all[rank].World().Fabric(), collective.Options{Buffer: devices.MiB})
			if err != nil {
				return err
			}
			err = g.AllReduce(ctx, v, v, elem.Sum)
			err = errors.Join(err, wrong(w.Local(), func(i int) float32 { return float32(4*i + 600) }))
			return errors.Join(err, g.Close(), w.Release(ctx)) //nolint:contextcheck // cleanup must not depend on the context
		})
	})
}
