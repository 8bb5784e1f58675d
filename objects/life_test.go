package objects_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// An object without names is unchanged while a process has it open or the kernel refers
// to it: it can be opened again.
func TestUnlinkedObjectLivesAsLongAsItCanBeReached(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	want := kit.Bytes(1, 0, 3<<20+17)
	f := r.create("sim0", "a")
	r.write(f, 0, want)
	second := r.open(f.Ino())
	r.store.Reference(f.Ino(), 1)
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "a"); err != nil {
		t.Fatal(err)
	}
	if a := r.attr(f.Ino()); a.Nlink != 0 || a.Size != uint64(len(want)) {
		t.Errorf("nlink %d, size %d after unlink", a.Nlink, a.Size)
	}
	r.close(f)
	if d := kit.FirstDiff(r.read(second, 0, len(want)), want); d >= 0 {
		t.Errorf("byte %d of an unlinked object differs", d)
	}
	r.close(second)
	third := r.open(f.Ino())
	if d := kit.FirstDiff(r.read(third, 0, len(want)), want); d >= 0 {
		t.Errorf("byte %d differs after it was opened without a name", d)
	}
	r.close(third)
	if a := r.attr(f.Ino()); a.Nlink != 0 || a.Size != uint64(len(want)) {
		t.Errorf("nlink %d, size %d while the kernel refers to it", a.Nlink, a.Size)
	}
	r.store.ReferencePart(f.Ino())
	r.store.Forget(f.Ino(), 1)
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use after the last reference", used)
	}
	if a := r.attr(f.Ino()); a.Nlink != 0 || a.Size != uint64(len(want)) {
		t.Errorf("nlink %d, size %d while the kernel refers to what is shown of it", a.Nlink, a.Size)
	}
	if _, err := r.store.OpenFile(r.ctx(), f.Ino()); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("open after the last reference: %v", err)
	}
	r.store.ForgetPart(f.Ino())
	if _, err := r.store.Attr(r.ctx(), f.Ino()); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("attributes after the last reference: %v", err)
	}
}

// An object whose name was removed without a request of the kernel ends with its last
// handle: the kernel may keep the name, and with it a reference.
func TestDroppedObjectGoesWithItsLastHandle(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "a")
	r.write(f, 0, kit.Bytes(1, 0, 1<<20))
	r.store.Reference(f.Ino(), 1)
	r.store.Drop(f.Ino()) // it has a name
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "a"); err != nil {
		t.Fatal(err)
	}
	r.store.Drop(f.Ino())
	if d := kit.FirstDiff(r.read(f, 0, 1<<20), kit.Bytes(1, 0, 1<<20)); d >= 0 {
		t.Errorf("byte %d differs", d)
	}
	r.close(f)
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use after the last handle", used)
	}
	r.store.Forget(f.Ino(), 1)
}

func TestReplacedAndClosedObjectsGiveMemoryBack(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	root := r.root("sim0")
	for i, name := range []string{"old", "new"} {
		f := r.create("sim0", name)
		r.write(f, 0, kit.Bytes(uint64(i), 0, 2<<20))
		r.close(f)
	}
	if err := r.store.Rename(r.ctx(), metadata.Rename{From: root, Name: "new", To: root, NewName: "old"}); err != nil {
		t.Fatal(err)
	}
	if used := r.used("sim0"); used != 2*devices.MiB {
		t.Errorf("%v in use, want one object's 2 MiB", used)
	}
	a, err := r.store.Lookup(r.ctx(), root, "old")
	if err != nil {
		t.Fatal(err)
	}
	f := r.open(a.Ino)
	defer r.close(f)
	if d := kit.FirstDiff(r.read(f, 0, 2<<20), kit.Bytes(1, 0, 2<<20)); d >= 0 {
		t.Errorf("byte %d differs", d)
	}
}

// TestLastBytes writes the last bytes that a file can have, and truncates it: all of
// its memory is freed, and it can be removed.
func TestLastBytes(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	const largest = 1<<63 - 1
	f := r.create("sim0", "a")
	r.write(f, largest-4097, kit.Bytes(3, 0, 4097))
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: new(uint64)}); err != nil {
		t.Fatal(err)
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use after a cut to nothing", used)
	}
	r.write(f, largest-1, kit.Bytes(4, 0, 1))
	r.close(f)
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "a"); err != nil {
		t.Error(err)
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use after rm", used)
	}
}

func TestDeviceFull(t *testing.T) {
	kit.Check(t)
	r := newRig(t, sim.Params{Size: 4 * devices.MiB})
	f := r.create("sim0", "a")
	p := kit.Bytes(7, 0, 6<<20)
	n, err := f.WriteAt(r.ctx(), p, objects.Write{})
	if n != 4<<20 || err != nil {
		t.Fatalf("write of 6 MiB to 4 MiB: %d, %v", n, err)
	}
	var full *devices.OutOfMemoryError
	if n, err := f.WriteAt(r.ctx(), p, objects.Write{Off: 4 << 20}); n != 0 || !errors.As(err, &full) {
		t.Fatalf("write to a full device: %d, %v", n, err)
	}
	if d := kit.FirstDiff(r.read(f, 0, 4<<20), p[:4<<20]); d >= 0 {
		t.Errorf("byte %d written before the device was full differs", d)
	}
	r.close(f)
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "a"); err != nil {
		t.Fatal(err)
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use after rm", used)
	}
}

func TestMoveBetweenDevices(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(true))
	want := kit.Bytes(3, 0, 5<<20+3)
	f := r.create("sim0", "a")
	r.write(f, 8192, want)
	before := r.attr(f.Ino())
	move := metadata.Rename{From: r.root("sim0"), Name: "a", To: r.root("sim1"), NewName: "b"}
	if err := r.store.Rename(r.ctx(), move); !errors.Is(err, metadata.ErrCrossDevice) {
		t.Fatalf("move of an open object: %v", err)
	}
	r.close(f)
	if err := r.store.Rename(r.ctx(), move); err != nil {
		t.Fatal(err)
	}
	a, err := r.store.Lookup(r.ctx(), r.root("sim1"), "b")
	if err != nil {
		t.Fatal(err)
	}
	if a.Ino != before.Ino || a.Device != "sim1" || a.Size != before.Size || a.Mtime != before.Mtime || a.Path != "mapped" {
		t.Errorf("after the move: %+v", a)
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v left on the device it came from", used)
	}
	f = r.open(a.Ino)
	defer r.close(f)
	if d := kit.FirstDiff(r.read(f, 8192, len(want)), want); d >= 0 {
		t.Errorf("byte %d differs", d)
	}
	if off, err := f.Seek(r.ctx(), 0, objects.SeekData); err != nil || off != 8192 {
		t.Errorf("the hole before the data was filled: data at %d, %v", off, err)
	}
}

func TestCrashLosesContentAndSaysSo(t *testing.T) {
	kit.Check(t)
	dev := sim.New(0, small(false))
	r := wrapped(t, dev)
	kept := r.create("sim0", "kept")
	r.write(kept, 0, kit.Bytes(1, 0, 100))
	empty := r.create("sim0", "empty")
	r.close(empty)
	devfaulty.Simulated(dev).Crash()
	if _, err := kept.ReadAt(r.ctx(), make([]byte, 10), 0); !errors.Is(err, objects.ErrLost) {
		t.Errorf("read after the crash: %v", err)
	}
	if _, err := kept.WriteAt(r.ctx(), []byte("x"), objects.Write{}); !errors.Is(err, objects.ErrLost) {
		t.Errorf("write after the crash: %v", err)
	}
	if a := r.attr(kept.Ino()); a.State != objects.StateLost || a.Resident != 0 || a.Size != 100 {
		t.Errorf("state %s, resident %d, size %d", a.State, a.Resident, a.Size)
	}
	if a := r.attr(empty.Ino()); a.State != objects.StateLive {
		t.Errorf("an empty object is %s", a.State)
	}
	zero := uint64(0)
	if a, err := r.store.SetAttr(r.ctx(), kept.Ino(), objects.Change{Size: &zero}); err != nil || a.State != objects.StateLive {
		t.Errorf("cut to nothing: %s, %v", a.State, err)
	}
	r.write(kept, 0, kit.Bytes(2, 0, 5000))
	if d := kit.FirstDiff(r.read(kept, 0, 5000), kit.Bytes(2, 0, 5000)); d >= 0 {
		t.Errorf("byte %d of the object's new life differs", d)
	}
	r.close(kept)
}

// A crash leaves records of objects that were never closed; the next daemon must report
// every one of them as lost, and none as empty.
func TestReopenInAnotherEpoch(t *testing.T) {
	kit.Check(t)
	dev := sim.New(0, small(false))
	r := wrapped(t, dev)
	var files []*objects.File
	for i := range 20 {
		f := r.create("sim0", fmt.Sprint("f", i))
		r.write(f, uint64(i)*3000, kit.Bytes(uint64(i), 0, 1+i*100))
		files = append(files, f)
	}
	dead := r.store
	devfaulty.Simulated(dev).Crash()
	r.reopen()
	for _, f := range files {
		if a := r.attr(f.Ino()); a.State != objects.StateLost || a.Size == 0 || a.Resident != 0 {
			t.Errorf("object %d of a dead daemon: %s, size %d", f.Ino(), a.State, a.Size)
		}
	}
	f := r.open(files[3].Ino())
	if n, err := f.ReadAt(r.ctx(), make([]byte, 10), 0); !errors.Is(err, objects.ErrLost) {
		t.Errorf("read %d bytes of an object of a dead daemon: %v", n, err)
	}
	r.close(f)
	for i := range files {
		if err := r.store.Unlink(r.ctx(), r.root("sim0"), fmt.Sprint("f", i)); err != nil {
			t.Errorf("remove a lost object: %v", err)
		}
	}
	if err := r.meta.Check(r.ctx(), func(p metadata.Problem) { t.Errorf("%+v", p) }); err != nil {
		t.Error(err)
	}
	if err := dead.Close(r.ctx(), objects.CloseOptions{}); err != nil {
		t.Error(err)
	}
}

func TestWritersAndReadersOfOneObject(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "a")
	defer r.close(f)
	const blocks, block, seed = 64, 4096 + 13, 9
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for b := w; b < blocks; b += 8 {
				off := int64(b * block)
				if _, err := f.WriteAt(r.ctx(), kit.Bytes(seed, off, block), objects.Write{Off: uint64(off)}); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() { readUnwrittenOr(r, f, seed, w*block, 3*block) })
		all.Go(func() {
			for range 20 {
				if _, err := r.store.Attr(r.ctx(), f.Ino()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if d := kit.FirstDiff(r.read(f, 0, blocks*block), kit.Bytes(seed, 0, blocks*block)); d >= 0 {
		t.Errorf("byte %d differs", d)
	}
}

// readUnwrittenOr reads a range repeatedly: each byte must be zero, or the byte written
// there.
func readUnwrittenOr(r *rig, f *objects.File, seed uint64, off, n int) {
	want := kit.Bytes(seed, int64(off), n)
	for range 50 {
		p := make([]byte, n)
		got, err := f.ReadAt(r.ctx(), p, uint64(off))
		if err != nil {
			r.t.Error(err)
		}
		for i, c := range p[:got] {
			if c != 0 && c != want[i] {
				r.t.Errorf("byte %d is %#x: neither unwritten nor %#x", off+i, c, want[i])
				return
			}
		}
	}
}

// Readers race with truncation and with other objects that take the freed
// memory: no reader may see another object's bytes.
func TestNoForeignBytes(t *testing.T) {
	kit.Check(t)
	r := newRig(t, sim.Params{Size: 2 * devices.MiB})
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for _, own := range []byte("ab") {
		f := r.create("sim0", string(own))
		defer r.close(f)
		readers.Go(func() { readOnly(r, f, own, stop) })
		writers.Go(func() { rewrite(r, f, own) })
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

const foreignSize = 512 << 10

// rewrite fills an object and truncates it to 0, repeatedly.
func rewrite(r *rig, f *objects.File, own byte) {
	p := bytes.Repeat([]byte{own}, foreignSize)
	zero := uint64(0)
	for range 60 {
		if _, err := f.WriteAt(r.ctx(), p, objects.Write{}); err != nil {
			r.t.Error(err)
		}
		if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: &zero}); err != nil {
			r.t.Error(err)
		}
	}
}

// readOnly reads until it is stopped, and finds nothing but zeros and own.
func readOnly(r *rig, f *objects.File, own byte, stop <-chan struct{}) {
	p := make([]byte, foreignSize)
	for {
		select {
		case <-stop:
			return
		default:
		}
		got, err := f.ReadAt(r.ctx(), p, 0)
		if err != nil {
			r.t.Error(err)
			return
		}
		if rest := bytes.Trim(p[:got], string([]byte{0, own})); len(rest) > 0 {
			r.t.Errorf("a byte of %q is %q", own, rest[0])
			return
		}
	}
}
