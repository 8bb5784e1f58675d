package objects_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// wantFull checks that an error has the requested and the free sizes.
func wantFull(t *testing.T, err error, asked, free devices.Size) {
	t.Helper()
	full, ok := errors.AsType[*devices.OutOfMemoryError](err)
	if !ok || full.Device != "sim0" || full.Asked != asked || full.Free != free {
		t.Errorf("got %v, want %v asked and %v free on sim0", err, asked, free)
	}
}

// TestFailedReserveTakesNothing requests more memory than is free: the call frees what
// it has allocated, and keeps the file's memory.
func TestFailedReserveTakesNothing(t *testing.T) {
	kit.Check(t)
	for name, mode := range map[string]objects.AllocateMode{
		"extend": objects.AllocateExtend, "keep size": objects.AllocateKeepSize,
		"zero": objects.AllocateZero, "zero, keep size": objects.AllocateZeroKeepSize,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, sim.Params{Size: 16 * devices.MiB})
			f := r.create("sim0", "a")
			defer r.close(f)
			want := kit.Bytes(3, 0, 3<<20+5)
			r.write(f, 0, want)
			// Memory without data, some way behind: the range has a hole
			// before it.
			if err := f.Allocate(r.ctx(), objects.AllocateKeepSize, 8<<20, 1<<20); err != nil {
				t.Fatal(err)
			}
			before := r.used("sim0")
			err := f.Allocate(r.ctx(), mode, 1<<20, 63<<20)
			wantFull(t, err, 64*devices.MiB-before, 16*devices.MiB-before)
			a := r.attr(f.Ino())
			if used := r.used("sim0"); used != before || a.Allocated != uint64(before) || a.Size != uint64(len(want)) {
				t.Errorf("size %d, allocated %d, %v used; want %d and %v", a.Size, a.Allocated, used, len(want), before)
			}
			if d := kit.FirstDiff(r.read(f, 0, len(want)), want); d >= 0 {
				t.Errorf("byte %d differs", d)
			}
			// All of the remaining memory can be allocated.
			if err := f.Allocate(r.ctx(), mode, 9<<20, uint64(16*devices.MiB-before)); err != nil {
				t.Errorf("what is free can't be taken: %v", err)
			}
		})
	}
}

// counted is a context that ends after a number of calls.
type counted struct {
	context.Context //nolint:containedctx // the type is a context itself
	left            int
}

func (c *counted) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterruptedReserveTakesNothing ends the context at every moment of a
// reservation in several pieces.
func TestInterruptedReserveTakesNothing(t *testing.T) {
	kit.Check(t)
	r := newRig(t, sim.Params{Size: 16 * devices.MiB})
	f := r.create("sim0", "a")
	defer r.close(f)
	for at := range uint64(8) { // every other MiB
		r.write(f, at<<21, kit.Bytes(at, int64(at)<<21, 100))
	}
	before := r.used("sim0")
	stopped := 0
	for left := range 1000 {
		ctx := &counted{r.ctx(), left}
		err := f.Allocate(ctx, objects.AllocateExtend, 0, 14<<20)
		if err == nil {
			break
		}
		stopped++
		if used := r.used("sim0"); !errors.Is(err, context.Canceled) || used != before {
			t.Fatalf("stopped after %d looks: %v, %v used, want %v", left, err, used, before)
		}
	}
	if stopped < 8 {
		t.Errorf("the reservation could be stopped at %d moments only", stopped)
	}
	for at := range uint64(7) {
		if d := kit.FirstDiff(r.read(f, at<<21, 100), kit.Bytes(at, int64(at)<<21, 100)); d >= 0 {
			t.Errorf("byte %d at %d differs", d, at<<21)
		}
	}
}

// TestFullTellsWhatWasAsked writes to a full device: the error has the requested size,
// not that of the last piece that was tried.
func TestFullTellsWhatWasAsked(t *testing.T) {
	kit.Check(t)
	r := newRig(t, sim.Params{Size: 4 * devices.MiB})
	f := r.create("sim0", "a")
	defer r.close(f)
	r.write(f, 0, kit.Bytes(1, 0, 4<<20))
	_, err := f.WriteAt(r.ctx(), kit.Bytes(2, 0, 3<<20), objects.Write{Off: 4 << 20})
	wantFull(t, err, 3*devices.MiB, 0)
}
