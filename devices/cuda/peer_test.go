package cuda

import (
	"errors"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/sim"
)

// TestPeers copies in both directions between all kinds of memory.
func TestPeers(t *testing.T) {
	d := newStandIn(t, "devices=3").driver()
	devs := []*device{open(t, d, "cuda:0"), open(t, d, "cuda:1"), open(t, d, "cuda:2")}
	const n = virtualFrom + 5
	seed := uint64(1)
	for _, sizes := range [][2]devices.Size{{n, n}, {5000, n}, {n, 5000}, {5000, 5000}} {
		for _, pair := range [][2]int{{0, 1}, {1, 0}, {2, 0}, {1, 2}, {1, 1}} {
			src, dst := alloc(t, devs[pair[0]], sizes[0]), alloc(t, devs[pair[1]], sizes[1])
			length := min(sizes[0], sizes[1]) - 3
			put(t, src.All(), seed)
			put(t, dst.All(), seed+1)
			if err := devices.CopyPeer(t.Context(), part(t, dst, 1, length), part(t, src, 2, length)); err != nil {
				t.Fatal(err)
			}
			holds(t, part(t, dst, 1, length), seed, 2)
			holds(t, part(t, dst, 0, 1), seed+1, 0)
			holds(t, part(t, dst, 1+length, sizes[1]-1-length), seed+1, int64(1+length))
			seed += 2
		}
	}
}

func TestPeersRefused(t *testing.T) {
	lib := newStandIn(t)
	d := lib.driver()
	a, b := open(t, d, "cuda:0"), open(t, d, "cuda:1")
	mem, other := alloc(t, a, 1000), alloc(t, b, 1000)
	foreign, err := sim.New(0, sim.Params{Size: devices.MiB}).Alloc(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	twice := alloc(t, open(t, d, "cuda:0"), 1000)
	far := alloc(t, open(t, lib.with(t, "peer=0").driver(), "cuda:1"), 1000)
	for what, c := range map[string]struct {
		dst, src devices.Span
		want     error
	}{
		"another family":   {mem.All(), foreign.All(), devices.ErrUnsupported},
		"another driver":   {mem.All(), far.All(), devices.ErrUnsupported},
		"the card itself":  {mem.All(), twice.All(), devices.ErrUnsupported},
		"no memory":        {mem.All(), devices.Span{}, devices.ErrRange},
		"another length":   {mem.All(), part(t, other, 0, 999), devices.ErrRange},
		"an end outside":   {mem.All(), devices.Span{Mem: other, Range: devices.Range{Off: 1, Len: 1000}}, devices.ErrRange},
		"the wrong device": {other.All(), other.All(), devices.ErrRange},
	} {
		if err := a.CopyPeer(t.Context(), c.dst, c.src); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	lib.set("fail=cuCtxEnablePeerAccess:1:711")
	if err := a.CopyPeer(t.Context(), mem.All(), other.All()); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("too many peers: %v", err)
	}
	lib.set()
	put(t, other.All(), 1)
	if err := a.CopyPeer(t.Context(), mem.All(), other.All()); err != nil {
		t.Errorf("after that: %v", err)
	}
	holds(t, mem.All(), 1, 0)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := a.CopyPeer(t.Context(), mem.All(), other.All()); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("from a closed device: %v", err)
	}
}

// TestPeersAndClose closes both cards during copies in both directions.
func TestPeersAndClose(t *testing.T) {
	d := newStandIn(t).driver()
	for range 20 {
		devs := []*device{open(t, d, "cuda:0"), open(t, d, "cuda:1")}
		mems := []*devices.Memory{alloc(t, devs[0], 10_000), alloc(t, devs[1], 10_000)}
		var group sync.WaitGroup
		begun := make(chan struct{}, 4)
		for i := range 4 {
			group.Go(func() {
				err := devs[i%2].CopyPeer(t.Context(), mems[i%2].All(), mems[1-i%2].All())
				begun <- struct{}{}
				for err == nil {
					err = devs[i%2].CopyPeer(t.Context(), mems[i%2].All(), mems[1-i%2].All())
				}
				if !errors.Is(err, devices.ErrClosed) {
					t.Error(err)
				}
			})
		}
		for range 4 {
			<-begun
		}
		for _, dev := range devs {
			group.Go(func() {
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
}

// TestImportOfAnotherCard opens a descriptor on the wrong card, which only the memory
// itself reveals.
func TestImportOfAnotherCard(t *testing.T) {
	d := newStandIn(t).driver()
	a, b := open(t, d, "cuda:0"), open(t, d, "cuda:1")
	mem, err := devices.AllocShared(t.Context(), a, 5000, devices.HandleVMM)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Release() }()
	h, err := devices.Export(t.Context(), mem)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	h.Device = ""
	if m, ierr := devices.Import(t.Context(), b, h); !errors.Is(ierr, devices.ErrHandle) {
		t.Errorf("opened on the wrong card: %v, %v", m, ierr)
	}
	h.Allocation = 0
	m, err := devices.Import(t.Context(), a, h)
	if err != nil {
		t.Fatal(err)
	}
	put(t, m.All(), 1)
	holds(t, mem.All(), 1, 0)
	// Imported memory has its own mapping, which a peer may read.
	dst := alloc(t, b, 5000)
	if err := b.CopyPeer(t.Context(), dst.All(), m.All()); err != nil {
		t.Fatal(err)
	}
	holds(t, dst.All(), 1, 0)
	if err := m.Release(); err != nil {
		t.Error(err)
	}
	holds(t, mem.All(), 1, 0)
}

// TestSharedUnitIsClean checks the bytes after exported memory: the importing process sees
// the rest of the unit.
func TestSharedUnitIsClean(t *testing.T) {
	d := open(t, newStandIn(t).driver(), "cuda:0")
	for _, kind := range d.ExportKinds() {
		mem, err := d.AllocShared(t.Context(), 5000, kind)
		if err != nil {
			t.Fatal(err)
		}
		rest := make([]byte, shareUnit-5000)
		err = d.withLane(t.Context(), func(l *lane) error {
			if cerr := d.api.copyOut(l.streams[0], rest, card.BlockOf(mem.All()).Addr.At(5000)); cerr != nil {
				return cerr
			}
			return d.api.synchronize(l.streams[0])
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range rest {
			if v != 0 {
				t.Fatalf("%s: byte %d is %#x", kind, 5000+i, v)
			}
		}
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	}
}
