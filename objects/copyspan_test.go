package objects_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// far is memory of another node.
type far struct {
	engine *transport.Engine

	bytes []byte
	// breaks is the byte at which the network fails; 0 is never.
	breaks int
	// meanwhile is called before bytes move, if not nil.
	meanwhile func(off int)
}

var errCut = errors.New("the network was cut")

func (m *far) part(off devices.Offset, n devices.Size) ([]byte, error) {
	if m.meanwhile != nil {
		m.meanwhile(int(off))
	}
	end := int(off) + int(n)
	if m.breaks > 0 && end > m.breaks {
		return nil, errCut
	}
	return m.bytes[off:end], nil
}

func (m *far) Fetch(ctx context.Context, dst transport.Span, off devices.Offset) (transport.Path, error) {
	p, err := m.part(off, dst.Len())
	if err == nil {
		_, err = m.engine.Copy(ctx, dst, transport.HostSpan(p))
	}
	return transport.PathTCP, err
}

func (m *far) Store(ctx context.Context, src transport.Span, off devices.Offset) (transport.Path, error) {
	p, err := m.part(off, src.Len())
	if err == nil {
		_, err = m.engine.Copy(ctx, transport.HostSpan(p), src)
	}
	return transport.PathTCP, err
}

func (m *far) span() transport.Span { return transport.RemoteSpan(m, 0, devices.Size(len(m.bytes))) }

// newFarRig is a store with each kind of tier, and a host file of 128 MiB at
// most.
func newFarRig(t *testing.T) (r *rig, names []string) {
	t.Helper()
	large := small(true)
	large.Size = 128 * devices.MiB
	h := hostTier(t)
	return wrapped(t, h, sim.New(0, large), sim.New(1, sim.Params{Size: 128 * devices.MiB})), []string{"host", "sim0", "sim1"}
}

// remove closes a file of a device and removes its name.
func (r *rig) remove(f *objects.File, device string) {
	r.t.Helper()
	ino := f.Ino()
	r.close(f)
	entries, err := r.store.ReadDir(r.ctx(), r.root(device), 0, 0)
	for _, e := range entries {
		if e.Ino == ino {
			err = errors.Join(err, r.store.Unlink(r.ctx(), r.root(device), e.Name))
		}
	}
	if err != nil {
		r.t.Error(err)
	}
}

func (r *rig) far(n int) *far {
	return &far{engine: r.engine, bytes: bytes.Repeat([]byte{0xa5}, n)}
}

// Content with holes is copied to another node and back, at odd offsets, and the paths
// are reported.
func TestCopySpanRemote(t *testing.T) {
	kit.Check(t)
	r, names := newFarRig(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { copySpanRemote(t, r, name) })
	}
}

func copySpanRemote(t *testing.T, r *rig, name string) {
	t.Helper()
	const size = 3<<20 + 77
	src, dst := r.create(name, name+"-src"), r.create(name, name+"-dst")
	want := make([]byte, size)
	for _, off := range []int{5, 2<<20 + 3} {
		kit.FillAt(want[off:off+600_000], 1, int64(off))
		r.write(src, uint64(off), want[off:off+600_000])
	}
	if _, err := r.store.SetAttr(r.ctx(), src.Ino(), objects.Change{Size: new(uint64(size))}); err != nil {
		t.Fatal(err)
	}
	there := r.far(size + 10)
	m, err := src.CopyOut(r.ctx(), 3, there.span())
	if err != nil || m != (objects.Moved{N: size - 3, Off: 3, Path: transport.PathTCP}) {
		t.Fatalf("%s: out: %+v, %v", name, m, err)
	}
	if i := kit.FirstDiff(there.bytes[:size-3], want[3:]); i >= 0 {
		t.Fatalf("%s: byte %d went out wrong", name, i)
	}
	if !bytes.Equal(there.bytes[size-3:], bytes.Repeat([]byte{0xa5}, 13)) {
		t.Errorf("%s: bytes behind the end went out", name)
	}
	r.write(dst, 0, want[:7])
	part, err := there.span().Part(4, size-7)
	if err != nil {
		t.Fatal(err)
	}
	m, err = dst.CopyIn(r.ctx(), part, objects.Write{Append: true})
	if err != nil || m != (objects.Moved{N: size - 7, Off: 7, Path: transport.PathTCP}) {
		t.Fatalf("%s: in: %+v, %v", name, m, err)
	}
	if got := r.read(dst, 0, size+9); kit.FirstDiff(got, want) >= 0 || len(got) != size {
		t.Fatalf("%s: byte %d of %d came in wrong", name, kit.FirstDiff(got, want), len(got))
	}
	if a := r.attr(dst.Ino()); a.Path != string(transport.PathTCP) || a.Size != size {
		t.Errorf("%s: %d bytes by %q", name, a.Size, a.Path)
	}
	if m, err = src.CopyOut(r.ctx(), size, there.span()); err != nil || m.N != 0 {
		t.Errorf("%s: at the end: %+v, %v", name, m, err)
	}
	r.remove(src, name)
	r.remove(dst, name)
}

// When the network fails, the size is correct, and behind the counted bytes there are
// neither wrong bytes nor any bytes.
func TestCopySpanBreaks(t *testing.T) {
	kit.Check(t)
	r, names := newFarRig(t)
	const size, old, breaks = 70 << 20, 1000, 40 << 20
	for _, name := range names {
		f := r.create(name, name)
		r.write(f, 0, kit.Bytes(9, 0, old))
		there := r.far(size)
		kit.FillAt(there.bytes, 1, 0)
		there.breaks = breaks
		m, err := f.CopyIn(r.ctx(), there.span(), objects.Write{Off: old})
		if !errors.Is(err, errCut) || m.N == 0 || m.N > breaks {
			t.Fatalf("%s: %+v, %v", name, m, err)
		}
		if a := r.attr(f.Ino()); a.Size != old+m.N {
			t.Errorf("%s: %d bytes came, and the size is %d", name, m.N, a.Size)
		}
		got := r.read(f, 0, size)
		if kit.DiffAt(got[:old], 9, 0) >= 0 || kit.DiffAt(got[old:], 1, 0) >= 0 || len(got) != old+int(m.N) {
			t.Errorf("%s: wrong bytes among %d", name, len(got))
		}
		there.breaks = old
		if m, err = f.CopyOut(r.ctx(), 0, there.span()); !errors.Is(err, errCut) || m.N != 0 {
			t.Errorf("%s: out: %+v, %v", name, m, err)
		}
		r.remove(f, name)
	}
}

// A copy of a file that is truncated meanwhile ends at the new end.
func TestCopySpanCutMeanwhile(t *testing.T) {
	kit.Check(t)
	r, names := newFarRig(t)
	const size, cut = 4 << 20, 1<<20 + 5
	for _, name := range names {
		f := r.create(name, name)
		r.write(f, 0, kit.Bytes(1, 0, size))
		there := r.far(size)
		there.meanwhile = func(int) {
			there.meanwhile = nil
			if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: new(uint64(cut))}); err != nil {
				t.Error(err)
			}
		}
		m, err := f.CopyOut(r.ctx(), 0, there.span())
		if err != nil || m.N != cut && (m.N != size || name == "host") {
			t.Fatalf("%s: %+v, %v", name, m, err)
		}
		if i := kit.DiffAt(there.bytes[:m.N], 1, 0); i >= 0 {
			t.Errorf("%s: byte %d is wrong", name, i)
		}
		r.remove(f, name)
	}
}

// A copy whose context ends returns the bytes copied so far, or the error if there are
// none.
func TestCopySpanGivenUp(t *testing.T) {
	kit.Check(t)
	r, names := newFarRig(t)
	for _, name := range names {
		f := r.create(name, name)
		there := r.far(100 << 20)
		kit.FillAt(there.bytes, 1, 0)
		ctx, cancel := context.WithCancel(r.ctx())
		there.meanwhile = func(off int) {
			if off > 0 {
				cancel()
			}
		}
		m, err := f.CopyIn(ctx, there.span(), objects.Write{})
		if err != nil || m.N == 0 || m.N == 100<<20 {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if got := r.read(f, 0, 100<<20); uint64(len(got)) != m.N || kit.DiffAt(got, 1, 0) >= 0 {
			t.Errorf("%s: wrong bytes among %d", name, len(got))
		}
		r.remove(f, name)
	}
}
