package objects_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	metafaulty "github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// errInjected is the error that injected failures return.
var errInjected = errors.New("injected")

// countdown fails one device operation: the n-th after it was armed. It
// leaves Free alone, since a device that can't free leaks by definition.
type countdown struct {
	left atomic.Int64
	hit  atomic.Bool
	log  func(op devfaulty.Op)
}

func (c *countdown) hook(op devfaulty.Op) error {
	if op.Kind == devfaulty.Free || op.Kind == devfaulty.Usage || c.left.Add(-1) != 0 {
		return nil
	}
	c.log(op)
	c.hit.Store(true)
	return errInjected
}

// TestErrors runs a script with the device's n-th operation failing, for every n. Each
// step either succeeds or fails as a whole; later reads return the right bytes or
// ErrDamaged, and nothing leaks.
func TestErrors(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		t.Run(fmt.Sprintf("mapped=%v", mapped), func(t *testing.T) {
			for n := int64(1); ; n++ {
				if n > 500 {
					t.Fatal("still failing operations")
				}
				c := &countdown{}
				r := wrapped(t, devfaulty.Wrap(sim.New(0, small(mapped)), c.hook), devfaulty.Wrap(sim.New(1, small(mapped)), c.hook))
				c.left.Store(n)
				c.log = func(op devfaulty.Op) { t.Logf("n=%d: %v %v of %s fails", n, op.Kind, op.Bytes, op.Device) }
				(&script{rig: r}).run()
				if !c.hit.Load() {
					return
				}
			}
		})
	}
}

// TestMetadataErrors is TestErrors for the operations of the key-value seam.
func TestMetadataErrors(t *testing.T) {
	for n := 0; ; n++ {
		if n > 2000 {
			t.Fatal("still failing operations")
		}
		c := &metafaulty.Counter{}
		r := &rig{t: t, devs: []devices.Device{sim.New(0, small(false)), sim.New(1, small(false))}}
		var err error
		if r.meta, err = metadata.Open(r.ctx(), metafaulty.Wrap(memkv.New(), c.Inject), metadata.Options{}); err != nil {
			t.Fatal(err)
		}
		if r.engine, err = transport.New(transport.Options{}); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		hit := false
		s := &script{rig: r, arm: func() { c.Arm(n) }, disarm: func() { hit = hit || c.Disarm() }}
		s.run()
		r.stop()
		if !hit {
			return
		}
	}
}

// script is a life of two objects in which every step may fail.
type script struct {
	rig *rig
	// arm enables the failure, and disarm disables it.
	arm    func()
	disarm func()
	failed bool
	file   *objects.File
	// old and now are the bytes before and after the last step that changed
	// object a: where it failed, either may be there.
	old, now []byte
}

func (s *script) note(err error) bool {
	if err != nil {
		s.failed = true
	}
	return err == nil
}

func (s *script) run() {
	r := s.rig
	root, other := r.root("sim0"), r.root("sim1")
	if s.arm != nil {
		s.arm()
	}
	a, err := r.store.Create(r.ctx(), root, "a", metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if s.note(err) {
		if f, err := r.store.OpenFile(r.ctx(), a.Ino); s.note(err) {
			s.file = f
			s.write(f, 0, kit.Bytes(1, 0, 600<<10))
			s.write(f, 100<<10, kit.Bytes(2, 0, 50<<10))
			s.punch(f, 8000, 70000)
			s.write(f, 700<<10, kit.Bytes(3, 0, 3))
			s.copyOut(f, other)
			s.note(f.Close(r.ctx()))
		}
		s.note(r.store.Rename(r.ctx(), metadata.Rename{From: root, Name: "a", To: other, NewName: "moved"}))
	}
	if s.disarm != nil {
		s.disarm()
	}
	s.verify()
	s.clean()
}

func (s *script) write(f *objects.File, off int, p []byte) {
	s.old = append([]byte(nil), s.now...)
	next := grow(append([]byte(nil), s.now...), off+len(p))
	copy(next[off:], p)
	n, err := f.WriteAt(s.rig.ctx(), p, objects.Write{Off: uint64(off)})
	if s.note(err) && n != len(p) {
		s.rig.t.Fatalf("wrote %d of %d without an error", n, len(p))
	}
	s.settle(next, err)
}

func (s *script) punch(f *objects.File, off, n int) {
	s.old = append([]byte(nil), s.now...)
	next := append([]byte(nil), s.now...)
	clear(next[min(off, len(next)):min(off+n, len(next))])
	err := f.Allocate(s.rig.ctx(), objects.AllocatePunch, uint64(off), uint64(n))
	s.note(err)
	s.settle(next, err)
}

// settle records the expected content. After a failure either version is allowed, so
// the content is read back, and each byte must be from one of the two.
func (s *script) settle(next []byte, err error) {
	s.now = next
	if err == nil {
		return
	}
	got := make([]byte, len(next))
	for off := 0; off < len(got); off += 4096 {
		part := got[off:min(off+4096, len(got))]
		if _, err := s.file.ReadAt(s.rig.ctx(), part, uint64(off)); err != nil {
			if !errors.Is(err, objects.ErrDamaged) && !errors.Is(err, devices.ErrDevice) {
				s.rig.t.Fatalf("read after a failure: %v", err)
			}
			copy(part, next[off:])
		}
		for i, c := range part {
			old := byte(0)
			if off+i < len(s.old) {
				old = s.old[off+i]
			}
			if c != next[off+i] && c != old {
				s.rig.t.Fatalf("byte %d is %#x after a failed step, neither %#x nor %#x", off+i, c, old, next[off+i])
			}
		}
	}
	s.now = got[:min(len(got), int(s.file.Size()))]
}

func (s *script) copyOut(f *objects.File, other objects.Ino) {
	r := s.rig
	b, err := r.store.Create(r.ctx(), other, "b", metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if !s.note(err) {
		return
	}
	dst, err := r.store.OpenFile(r.ctx(), b.Ino)
	if !s.note(err) {
		return
	}
	n, err := r.store.CopyRange(r.ctx(), objects.CopyRange{Dst: dst, Src: f, N: uint64(len(s.now))})
	s.note(err)
	if n > 0 {
		got := make([]byte, n)
		if _, err := dst.ReadAt(r.ctx(), got, 0); err == nil {
			if d := kit.FirstDiff(got, s.now[:n]); d >= 0 {
				r.t.Fatalf("byte %d of %d copied differs", d, n)
			}
		}
	}
	s.note(dst.Close(r.ctx()))
}

// verify reads object a, on whatever device it is now.
func (s *script) verify() {
	r := s.rig
	for dev, name := range map[string]string{"sim0": "a", "sim1": "moved"} {
		in, err := r.store.Lookup(r.ctx(), r.root(dev), name)
		if err != nil {
			continue
		}
		f := r.open(in.Ino)
		for off := 0; off < len(s.now); off += 4096 {
			part := make([]byte, min(4096, len(s.now)-off))
			_, err := f.ReadAt(r.ctx(), part, uint64(off))
			if errors.Is(err, objects.ErrDamaged) || errors.Is(err, devices.ErrDevice) {
				continue
			}
			if d := kit.FirstDiff(part, s.now[off:off+len(part)]); err != nil || d >= 0 {
				r.t.Fatalf("%s/%s: byte %d differs, %v", dev, name, off+d, err)
			}
		}
		r.close(f)
	}
}

// clean removes everything and checks that the devices are empty.
func (s *script) clean() {
	r := s.rig
	for _, dev := range []devices.Name{"sim0", "sim1"} {
		root := r.root(string(dev))
		entries, err := r.store.ReadDir(r.ctx(), root, 0, 100)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			for err := errInjected; errors.Is(err, errInjected); {
				err = r.store.Unlink(r.ctx(), root, e.Name)
				if err != nil && !errors.Is(err, devices.ErrDevice) {
					r.t.Fatal(err)
				}
			}
		}
		if used := r.used(dev); used != 0 {
			r.t.Fatalf("%v of %s in use after everything was removed", used, dev)
		}
	}
	if err := r.meta.Check(r.ctx(), func(p metadata.Problem) { r.t.Errorf("record: %+v", p) }); err != nil {
		r.t.Fatal(err)
	}
}
