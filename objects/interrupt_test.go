package objects_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestInterruptedWriteIsWhole interrupts a write while the device copies: it ends as
// without the interrupt, and leaves no unreadable bytes.
func TestInterruptedWriteIsWhole(t *testing.T) {
	kit.Check(t)
	const size = 1 << 20
	for _, mapped := range []bool{false, true} {
		var interrupt context.CancelFunc
		r := wrapped(t, devfaulty.Wrap(sim.New(0, small(mapped)), func(op devfaulty.Op) error {
			if interrupt != nil && (op.Kind == devfaulty.CopyIn || op.Kind == devfaulty.Map) {
				interrupt()
			}
			return nil
		}))
		f := r.create("sim0", "a")
		r.write(f, 0, kit.Bytes(1, 0, size))
		ctx, cancel := context.WithCancel(r.ctx())
		interrupt = cancel
		n, err := f.WriteAt(ctx, kit.Bytes(2, 0, size), objects.Write{})
		if interrupt = nil; n != size || err != nil {
			t.Errorf("mapped %v: wrote %d bytes, %v", mapped, n, err)
		}
		if d := kit.FirstDiff(r.read(f, 0, size), kit.Bytes(2, 0, size)); d >= 0 {
			t.Errorf("mapped %v: byte %d differs", mapped, d)
		}
		long := transfer(r, f)
		if n, err := r.store.CopyRange(ctx, long); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("mapped %v: copied %d bytes after the interrupt, %v", mapped, n, err)
		}
		r.close(long.Dst)
		r.close(f)
	}
}

// transfer is a copy of all of a file to a new one.
func transfer(r *rig, f *objects.File) objects.CopyRange {
	r.t.Helper()
	return objects.CopyRange{Src: f, Dst: r.create("sim0", "copy"), N: f.Size()}
}

// TestLostBeforeItWasSaved loses an object whose record was never saved after its bytes
// were written: each access reports the loss, and none takes the object for empty.
func TestLostBeforeItWasSaved(t *testing.T) {
	kit.Check(t)
	dev, other := sim.New(0, small(false)), sim.New(1, sim.Params{Size: 32 * devices.MiB})
	r := wrapped(t, dev, other)
	unsaved := r.create("sim0", "unsaved")
	r.write(unsaved, 0, kit.Bytes(1, 0, 5000))
	size := uint64(9000)
	hole := r.create("sim0", "hole")
	if _, err := r.store.SetAttr(r.ctx(), hole.Ino(), objects.Change{Size: &size}); err != nil {
		t.Fatal(err)
	}
	dead := r.store
	dev.(*sim.Device).Crash() //nolint:errcheck // the device is a simulated one
	r.reopen()
	if a := r.attr(unsaved.Ino()); a.State != objects.StateLost || a.Size != 5000 {
		t.Errorf("the object that was written to: %s, %d bytes", a.State, a.Size)
	}
	if a := r.attr(hole.Ino()); a.State != objects.StateLive || a.Size != size {
		t.Errorf("the object of zeros: %s, %d bytes", a.State, a.Size)
	}
	f, to := r.open(unsaved.Ino()), r.create("sim1", "copy")
	for _, off := range []uint64{0, 4999, 5000, 1 << 30} {
		if n, err := f.ReadAt(r.ctx(), make([]byte, 10), off); !errors.Is(err, objects.ErrLost) {
			t.Errorf("read at %d: %d bytes, %v", off, n, err)
		}
		if n, err := r.store.CopyRange(r.ctx(), objects.CopyRange{Dst: to, Src: f, SrcOff: off, N: 10}); !errors.Is(err, objects.ErrLost) {
			t.Errorf("copy from %d: %d bytes, %v", off, n, err)
		}
	}
	r.close(f)
	r.close(to)
	if err := dead.Close(r.ctx(), objects.CloseOptions{}); err != nil {
		t.Error(err)
	}
}

// TestMoveWaitsForTheLastClose renames to another device a file that is closed a moment
// later, as when the kernel is slow to report a close.
func TestMoveWaitsForTheLastClose(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(false))
	f := r.create("sim0", "a")
	r.write(f, 0, kit.Bytes(1, 0, 5000))
	move := metadata.Rename{From: r.root("sim0"), Name: "a", To: r.root("sim1"), NewName: "b"}
	if err := r.store.Rename(r.ctx(), move); !errors.Is(err, metadata.ErrCrossDevice) {
		t.Errorf("move of a file that stays open: %v", err)
	}
	closed := make(chan error, 1)
	time.AfterFunc(10*time.Millisecond, func() { closed <- f.Close(r.ctx()) })
	if err := errors.Join(r.store.Rename(r.ctx(), move), <-closed); err != nil {
		t.Errorf("move of a file that is closed soon: %v", err)
	}
}
