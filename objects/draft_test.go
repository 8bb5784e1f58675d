package objects_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// drafted makes a draft of a file with these bytes.
func (r *rig) drafted(f *objects.File, p []byte) *objects.Draft {
	r.t.Helper()
	d, err := f.Draft(r.ctx(), uint64(len(p)))
	if err != nil {
		r.t.Fatal(err)
	}
	// The second half first: results come in any order.
	half := len(p) / 2
	for _, part := range []struct{ at, end int }{{half, len(p)}, {0, half}} {
		if err := d.CopyIn(r.ctx(), transport.HostSpan(p[part.at:part.end]), uint64(part.at)); err != nil {
			r.t.Fatal(err)
		}
	}
	return d
}

// TestDraft replaces the content of files by more, fewer and as many bytes.
func TestDraft(t *testing.T) {
	for name, params := range map[string]sim.Params{"plain": small(false), "mapped": small(true)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, params)
			f := r.create("sim0", "a")
			defer r.close(f)
			before := kit.Bytes(1, 0, 3*(1<<20)+17)
			r.write(f, 0, before)
			for i, n := range []int{len(before), 5 << 20, 100, 0, 1 << 20} {
				after := kit.Bytes(uint64(i)+2, 0, n)
				d := r.drafted(f, after)
				if got := r.read(f, 0, len(before)); !bytes.Equal(got, before) {
					t.Fatal("a draft can be seen before it is committed")
				}
				if err := d.Check(); err != nil {
					t.Fatal(err)
				}
				if err := d.Commit(r.ctx(), false); err != nil {
					t.Fatal(err)
				}
				if got := r.read(f, 0, n+1); !bytes.Equal(got, after) {
					t.Fatalf("%d bytes are not those of the draft of %d", len(got), n)
				}
				before = after
			}
		})
	}
}

// TestDraftDiscarded: a draft that is not committed leaves the file unchanged, and its
// memory is freed.
func TestDraftDiscarded(t *testing.T) {
	r := newRig(t, small(false))
	f := r.create("sim0", "a")
	defer r.close(f)
	before := kit.Bytes(1, 0, 1<<20)
	r.write(f, 0, before)
	for range 100 { // of 16 MiB in a device of 32
		r.drafted(f, kit.Bytes(2, 0, 16<<20)).Discard()
	}
	if got := r.read(f, 0, len(before)); !bytes.Equal(got, before) {
		t.Error("a draft that was discarded has changed the file")
	}
}

// TestDraftFull: on a device without room, making the draft fails.
func TestDraftFull(t *testing.T) {
	r := newRig(t, small(false))
	f := r.create("sim0", "a")
	defer r.close(f)
	before := kit.Bytes(1, 0, 20<<20)
	r.write(f, 0, before)
	if _, err := f.Draft(r.ctx(), 20<<20); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Fatalf("a draft for which there is no room: %v", err)
	}
	if got := r.read(f, 0, len(before)); !bytes.Equal(got, before) {
		t.Error("the file has changed")
	}
	d := r.drafted(f, kit.Bytes(2, 0, 8<<20)) // what was taken is back
	d.Discard()
}

// TestDraftOfWhatChanges: a file that was written after Draft is not replaced.
func TestDraftOfWhatChanges(t *testing.T) {
	r := newRig(t, small(false))
	f := r.create("sim0", "a")
	defer r.close(f)
	r.write(f, 0, kit.Bytes(1, 0, 1<<20))
	d := r.drafted(f, kit.Bytes(2, 0, 1<<20))
	r.write(f, 17, []byte("changed"))
	want := r.read(f, 0, 1<<20)
	if err := d.Check(); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("check: %v", err)
	}
	if err := d.Commit(r.ctx(), false); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("commit: %v", err)
	}
	if got := r.read(f, 0, 1<<20); !bytes.Equal(got, want) {
		t.Error("the file has changed")
	}
}

// TestDraftIsOneStep: each read finds either the old bytes or the new ones.
func TestDraftIsOneStep(t *testing.T) {
	r := newRig(t, small(true))
	f := r.create("sim0", "a")
	defer r.close(f)
	const size = 256 << 10
	all := make([][]byte, 2)
	for i := range all {
		all[i] = bytes.Repeat([]byte{byte(i + 1)}, size)
	}
	r.write(f, 0, all[0])
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			p := make([]byte, size)
			for {
				select {
				case <-stop:
					return
				default:
				}
				n, err := f.Peek(r.ctx(), p, 0)
				if err != nil || n != size || !bytes.Equal(p, all[0]) && !bytes.Equal(p, all[1]) {
					t.Errorf("%d bytes of two contents, from %d to %d: %v", n, p[0], p[size-1], err)
					return
				}
			}
		})
	}
	for i := range 200 {
		if err := r.drafted(f, all[(i+1)%2]).Commit(r.ctx(), false); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
}
