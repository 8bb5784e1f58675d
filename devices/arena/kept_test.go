package arena

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/tests/keep"
)

// lastingFake is a fakeDevice with memory in files, which it does not map.
type lastingFake struct{ *fakeDevice }

func (d lastingFake) AllocIn(ctx context.Context, _ *os.File, n devices.Size) (*devices.Memory, error) {
	return d.Alloc(ctx, n)
}

func (d lastingFake) Resume(e devices.Epoch) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch = e
	return nil
}

// ownFake is a lastingFake with memory of its own, in units that are no power of two.
type ownFake struct{ lastingFake }

const fakeUnit = 36 * devices.KiB

func (ownFake) LastingUnit() devices.Size { return fakeUnit }

func (ownFake) MakeLasting(_ context.Context, n devices.Size) (*os.File, error) {
	return memfd.Create("own", int64(wholeUnits(n, fakeUnit)))
}

func (d ownFake) AllocIn(ctx context.Context, f *os.File, n devices.Size) (*devices.Memory, error) {
	if n%fakeUnit != 0 {
		return nil, fmt.Errorf("%d bytes are not whole units", uint64(n))
	}
	if err := memfd.Check(f, int64(n)); err != nil {
		return nil, errors.Join(devices.ErrHandle, err)
	}
	return d.lastingFake.AllocIn(ctx, f, n)
}

// deniedFake is an ownFake whose driver makes no descriptors, or does not accept those that it makes.
type deniedFake struct {
	ownFake
	makes bool
}

var errDenied = errors.New("the driver refuses")

func (d deniedFake) MakeLasting(ctx context.Context, n devices.Size) (*os.File, error) {
	if !d.makes {
		return nil, errDenied
	}
	return d.ownFake.MakeLasting(ctx, n)
}

func (deniedFake) AllocIn(context.Context, *os.File, devices.Size) (*devices.Memory, error) {
	return nil, errors.Join(errDenied, devices.ErrHandle)
}

// keptModel compares an arena that is killed and restored with a map of its pages.
type keptModel struct {
	t      *testing.T
	rng    *rand.Rand
	own    bool // of ownFake
	keeper *keep.Store
	arena  *Arena
	epoch  devices.Epoch
	next   uint64
	leases []Lease
	labels []Label
}

var keptOptions = Options{SlabSize: 300 * devices.KiB, Retain: 600 * devices.KiB}

func (m *keptModel) open() {
	fake := lastingFake{newFake(3*devices.MiB+9000, 2*devices.MiB)}
	fake.epoch = m.epoch
	var dev devices.Device = fake
	if m.own {
		dev = ownFake{fake}
	}
	o := keptOptions
	o.Keeper = m.keeper
	a, err := New(dev, o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.arena = a
}

func (m *keptModel) label(i int) {
	l := m.leases[i]
	m.labels[i].Written = uint64(m.rng.IntN(int(l.Span.Len) + 1))
	if !m.arena.Label(l, m.labels[i]) {
		m.t.Fatal("memory of a kept arena is not kept")
	}
}

func (m *keptModel) step() {
	i := 0
	if len(m.leases) > 0 {
		i = m.rng.IntN(len(m.leases))
	}
	switch op := m.rng.IntN(10); {
	case op < 4 || len(m.leases) == 0:
		l, err := m.arena.AllocSome(m.t.Context(), devices.Size(1+m.rng.IntN(120_000)), 1)
		if errors.Is(err, devices.ErrOutOfMemory) {
			return
		}
		if err != nil {
			m.t.Fatal(err)
		}
		m.next++
		m.leases = append(m.leases, l)
		// Several leases of one owner far apart, so that no two are one range.
		m.labels = append(m.labels, Label{Owner: 1 + m.next%5, Off: m.next << 30})
		m.label(len(m.leases) - 1)
	case op < 6:
		m.label(i)
	case op < 7:
		by := m.arena.Extend(m.leases[i], 9000)
		m.leases[i].Span.Len += by
		m.label(i)
	default:
		m.arena.Unlabel(m.leases[i])
		mustFree(m.t, m.arena, m.leases[i])
		m.leases = append(m.leases[:i], m.leases[i+1:]...)
		m.labels = append(m.labels[:i], m.labels[i+1:]...)
	}
}

// kill makes a new arena of what the keeper has, without the leases of one owner.
func (m *keptModel) kill() {
	m.open()
	files, err := m.keeper.Kept("mem/fake0/")
	if err != nil {
		m.t.Fatal(err)
	}
	gone := 1 + m.rng.Uint64N(6)
	found := map[Label]Found{}
	sum, err := m.arena.Restore(m.t.Context(), files, func(f Found) bool {
		found[f.Label] = f
		return f.Owner != gone
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			m.t.Error(err)
		}
	}
	var leased, freed devices.Size
	var leases []Lease
	var labels []Label
	for i, want := range m.leases {
		f, ok := found[m.labels[i]]
		if !ok || f.Slab != want.Slab || f.Range != want.Span.Range {
			m.t.Fatalf("lease %v of slab %d with %+v became %+v", want.Span.Range, want.Slab, m.labels[i], f)
		}
		l, err := m.arena.Resolve(f.Slab, f.Range)
		if f.Owner == gone {
			freed += f.Range.Len
			if err == nil {
				m.t.Fatalf("%v of an owner that is gone is leased", f.Range)
			}
			continue
		}
		if got, ok := m.arena.LabelOf(l); err != nil || !ok || got != m.labels[i] {
			m.t.Fatalf("label %+v, %v, %v; want %+v", got, ok, err, m.labels[i])
		}
		leased += f.Range.Len
		leases, labels = append(leases, l), append(labels, m.labels[i])
	}
	if len(found) != len(m.leases) || sum.Leased != leased || sum.Freed != freed || m.arena.Usage().Leased != leased {
		m.t.Fatalf("found %d leases of %d, %+v, %+v; want %d and %d bytes", len(found), len(m.leases), sum, m.arena.Usage(), leased, freed)
	}
	m.leases, m.labels = leases, labels
}

func TestRestore(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own=%v", own), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			m := &keptModel{t: t, own: own, rng: rand.New(rand.NewPCG(seed, 1)), keeper: &keep.Store{}, epoch: 7}
			m.open()
			for range 60 {
				for range m.rng.IntN(60) {
					m.step()
				}
				m.kill()
			}
			if err := m.arena.Close(); err != nil {
				t.Error(err)
			}
			if n := m.keeper.Len(); n != 0 {
				t.Errorf("%d descriptors are kept after Close", n)
			}
		})
	}
}

// TestRestoreOwn checks slabs of which a part is missing, or is not memory of the device.
func TestRestoreOwn(t *testing.T) {
	m := &keptModel{t: t, own: true, keeper: &keep.Store{}, epoch: 7}
	m.open()
	l := mustAlloc(t, m.arena, 400*devices.KiB)
	if l.Span.Mem.Size() != 12*fakeUnit || m.arena.Usage().Total%fakeUnit != 0 {
		t.Errorf("a slab of %v of %v", l.Span.Mem.Size(), m.arena.Usage().Total)
	}
	files, err := m.keeper.Kept("")
	if err != nil || len(files) != 2 {
		t.Fatalf("kept are %v, %v", files, err)
	}
	const name = "mem/fake0/7/1/442368"
	memory, labels := files[name], files[name+labelsSuffix]
	none := func(Found) bool { t.Error("a range was found"); return true }
	for what, c := range map[string]struct {
		files map[string]*os.File
		ok    bool
	}{
		"labels alone":  {map[string]*os.File{name + labelsSuffix: labels}, true},
		"memory alone":  {map[string]*os.File{name: memory}, false},
		"other memory":  {map[string]*os.File{name: labels, name + labelsSuffix: labels}, false},
		"other labels":  {map[string]*os.File{name: memory, name + labelsSuffix: memory}, false},
		"nothing taken": {map[string]*os.File{name: memory, name + labelsSuffix: labels}, true},
	} {
		m.open()
		if _, err := m.arena.Restore(t.Context(), c.files, none); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrNoSlab) {
			t.Errorf("%s: %v", what, err)
		}
		if m.arena.Has(name) || m.arena.Has(name+labelsSuffix) {
			t.Errorf("%s: a slab without leases is in use", what)
		}
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := m.keeper.Close(); err != nil {
		t.Error(err)
	}
}

// TestRestoreRefuses checks what is not memory of this arena.
func TestRestoreRefuses(t *testing.T) {
	keeper := &keep.Store{}
	m := &keptModel{t: t, rng: rand.New(rand.NewPCG(1, 1)), keeper: keeper, epoch: 7}
	m.open()
	l := mustAlloc(t, m.arena, 4096)
	m.arena.mu.Lock()
	name := m.arena.slabs[l.Slab].name
	m.arena.mu.Unlock()
	short, err := memfd.Create("short", 4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := short.Close(); err != nil {
			t.Error(err)
		}
	})
	none := func(Found) bool { t.Error("a range was found"); return true }
	for file, ok := range map[string]bool{
		name: false, "mem/fake0/8/1/307200": true, "mem/fake0/7/0/307200": true, "mem/fake0/7/1/307201": true,
		"mem/fake0/7/1/1073741824": true, "mem/fake0/7/1": true, "mem/fake0/objects": true, "mem/fake1/7/1/307200": true, "": true,
	} {
		m.open()
		if _, err := m.arena.Restore(t.Context(), map[string]*os.File{file: short}, none); (err == nil) != ok {
			t.Errorf("%q: %v", file, err)
		}
	}
	if err := keeper.Close(); err != nil {
		t.Error(err)
	}
}

// TestDenied checks an arena over a driver that refuses: the memory ends with the process.
func TestDenied(t *testing.T) {
	for _, makes := range []bool{false, true} {
		keeper := &keep.Store{}
		dev := deniedFake{ownFake{lastingFake{newFake(8*devices.MiB, 0)}}, makes}
		var told error
		a := newArena(t, dev, Options{Keeper: keeper, Unkept: func(err error) { told = err }})
		l := mustAlloc(t, a, 4096)
		if a.Label(l, Label{Owner: 1}) || !errors.Is(told, errDenied) || keeper.Len() != 0 {
			t.Errorf("kept, or nothing was said: %v, %d descriptors", told, keeper.Len())
		}
		mustFree(t, a, l)
	}
}

// TestNotKept checks an arena whose keeper refuses.
func TestNotKept(t *testing.T) {
	keeper, refusal := &keep.Store{}, errors.New("no room")
	keeper.Refuse(refusal)
	dev := lastingFake{newFake(8*devices.MiB, 0)}
	var told error
	a := newArena(t, dev, Options{Keeper: keeper, Unkept: func(err error) { told = err }})
	l := mustAlloc(t, a, 4096)
	if a.Label(l, Label{Owner: 1}) || !errors.Is(told, refusal) {
		t.Errorf("kept, or nothing was said: %v", told)
	}
	a.Unlabel(l)
	mustFree(t, a, l)
	strict := newArena(t, dev, Options{Keeper: keeper})
	if _, err := strict.Alloc(t.Context(), 4096); !errors.Is(err, refusal) || dev.inUse() != a.Usage().Held {
		t.Errorf("%v, %v in use", err, dev.inUse())
	}
}
