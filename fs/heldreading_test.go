package fs

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestHeldReading records what readers of publish/ have had, and compares it across openings of the state.
func TestHeldReading(t *testing.T) {
	s := newTestState(t)
	s.add(heldSlot{id: 1, ino: 10, kind: heldFile, reading: reads}, nil)
	s.add(heldSlot{id: 2, ino: 10, kind: heldFile, reading: reads}, nil)
	other := []objects.Stretch{{From: 3, End: 5}}
	heldProgress{s, 2}.Delivered(other)
	s.isSole(1)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 500 {
		all := make([]objects.Stretch, rng.IntN(40))
		for i := range all {
			all[i] = objects.Stretch{From: uint64(i)*100 + rng.Uint64N(50), End: uint64(i)*100 + 50 + rng.Uint64N(40)}
		}
		receives := rng.IntN(2) == 0
		p := heldProgress{s, 1}
		p.Delivered(all)
		p.Receives(receives)
		if rng.IntN(20) == 0 {
			again := reopenState(t, s)
			must(t, s.close())
			s = again
		}
		kept := all[:min(len(all), heldStretches)]
		if got := s.read(1); !slices.Equal(got.Delivered, kept) || got.Receives != receives {
			t.Fatalf("round %d: %+v is kept of %v, %v", round, got, all, receives)
		}
		if got := s.read(2); !slices.Equal(got.Delivered, other) || got.Receives {
			t.Fatalf("round %d: the other reader's is %+v", round, got)
		}
		for _, slot := range s.all() {
			if (slot.reading&sole != 0) != (slot.id == 1) {
				t.Fatalf("round %d: the bits of handle %d are %b", round, slot.id, slot.reading)
			}
		}
	}
	s.remove(1, heldFile)
	heldProgress{s, 1}.Delivered(other) // of a file that is closed
	s.add(heldSlot{id: 3, ino: 10, kind: heldFile, reading: reads}, nil)
	if got := s.read(3); len(got.Delivered) > 0 || got.Receives {
		t.Errorf("a new reader has had %+v", got)
	}
	must(t, s.close())
}

// TestRestoreReading has a process that follows read on in publish/.
func TestRestoreReading(t *testing.T) {
	const half = 5000
	h := newHeldRig(t)
	data := kit.Bytes(7, 0, 2*half)
	ino := h.publish(h.root("sim0"), "t", data)
	var out fuse.OpenOut
	h.ok(h.on.Open(nil, &fuse.OpenIn{InHeader: header(ino), Flags: unix.O_RDONLY}, &out))
	f := &file{r: h.rig, ino: ino, fh: out.Fh}
	got := f.readAt(half, 0)

	next := &holding{filesystem: h.filesystem, state: reopenState(t, h.on.state)}
	dead, _ := h.files.take(out.Fh)
	h.published.release(dead.file.Ino(), out.Fh)
	dead.file.Abandon(t.Context())
	next.restore(t.Context())
	got = append(got, f.readAt(half, half)...)
	if kit.FirstDiff(got, data) >= 0 {
		t.Errorf("different at %d", kit.FirstDiff(got, data))
	}
	h.ok(next.Flush(nil, &fuse.FlushIn{InHeader: header(ino), Fh: out.Fh}))
	if found := h.lookup(publishIno, "t"); found.NodeId != 0 {
		t.Error("the name of a file that was received is still there")
	}
	next.Release(nil, &fuse.ReleaseIn{InHeader: header(ino), Fh: out.Fh})
	if all := next.state.all(); len(all) > 0 {
		t.Errorf("%d handles are left", len(all))
	}
	must(t, next.state.close())
}
