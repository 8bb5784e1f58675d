package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestContextsOfTwoCards uses two cards from many goroutines at the same time. The stand-in
// ends the process if any call is made on a thread with another card's context, or with
// none.
func TestContextsOfTwoCards(t *testing.T) {
	lib := newStandIn(t)
	d := lib.driver()
	devs := []*device{open(t, d, "cuda:0"), open(t, d, "cuda:1")}
	var group sync.WaitGroup
	for g := range 8 {
		one, other := devs[g%2], devs[1-g%2]
		group.Go(func() {
			for i := range 10 {
				if err := roundTrip(t.Context(), one, other, uint64(g*100+i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// roundTrip allocates memory of two cards, copies bytes between them and frees it.
func roundTrip(ctx context.Context, one, other devices.Device, seed uint64) (err error) {
	const n = 300_001
	var mems [3]*devices.Memory
	for i, dev := range []devices.Device{one, other, one} {
		if mems[i], err = dev.Alloc(ctx, n); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, mems[i].Release()) }()
	}
	p := kit.Bytes(seed, 0, n)
	unpin, pinned := devices.PinHost(other, p)
	if !pinned {
		return errors.New("not pinned")
	}
	defer unpin()
	if err := errors.Join(
		one.CopyIn(ctx, mems[0].All(), p),
		devices.CopyPeer(ctx, mems[1].All(), mems[0].All()),
		one.Fill(ctx, mems[2].All(), 0),
		devices.CopyPeer(ctx, mems[2].All(), mems[1].All()),
	); err != nil {
		return err
	}
	if _, err := one.Usage(); err != nil {
		return err
	}
	clear(p)
	if err := one.CopyOut(ctx, p, mems[2].All()); err != nil {
		return err
	}
	if at := kit.DiffAt(p, seed, 0); at >= 0 {
		return fmt.Errorf("seed %d: byte %d differs", seed, at)
	}
	return nil
}

// TestLongMoves copies more than two pieces by each route.
func TestLongMoves(t *testing.T) {
	d := open(t, newStandIn(t).driver(), "cuda:0")
	const n = 40<<20 + 12345
	mem := alloc(t, d, n)
	put(t, mem.All(), 1)
	holds(t, mem.All(), 1, 0)
	p := kit.Bytes(2, 0, n)
	unpin, err := d.PinHost(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CopyIn(t.Context(), mem.All(), p); err != nil {
		t.Fatal(err)
	}
	clear(p)
	if err := d.CopyOut(t.Context(), p, mem.All()); err != nil {
		t.Fatal(err)
	}
	unpin()
	if at := kit.DiffAt(p, 2, 0); at >= 0 {
		t.Errorf("byte %d differs", at)
	}
}

// TestPinnedGoesDirect makes staging impossible, so that only copies from and to pinned
// memory can succeed.
func TestPinnedGoesDirect(t *testing.T) {
	lib := newStandIn(t)
	d := open(t, lib.driver(), "cuda:0")
	lib.set("fail=cuMemHostAlloc:0:2")
	const n = 100_000
	mem := alloc(t, d, n)
	p := mapped(t, n+8192)
	copy(p, kit.Bytes(1, 0, len(p)))
	in := func(at int) error { return d.CopyIn(t.Context(), mem.All(), p[at:at+n]) }
	if err := in(0); codeOf(err) != codeOutOfMemory {
		t.Fatalf("memory that is not pinned: %v", err)
	}
	unpin, err := d.PinHost(p[4096 : 4096+n])
	if err != nil {
		t.Fatal(err)
	}
	for at, direct := range map[int]bool{4096: true, 0: false, 4095: false, 4097: false, 8192: false} {
		if err := in(at); (err == nil) != direct {
			t.Errorf("memory %d bytes from what is pinned: %v", at-4096, err)
		}
	}
	got := p[4096+5 : 4096+n-5]
	clear(got)
	if err := d.CopyOut(t.Context(), got, part(t, mem, 5, n-10)); err != nil {
		t.Fatal(err)
	}
	if at := kit.DiffAt(got, 1, 4096+5); at >= 0 {
		t.Errorf("byte %d differs", at)
	}
	unpin()
	unpin()
	if err := in(4096); err == nil {
		t.Error("memory that was unpinned goes direct")
	}
}

// mapped returns memory outside of Go's heap.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(p); err != nil {
			t.Error(err)
		}
	})
	return p
}

// pin pins memory for a card.
func pin(t *testing.T, dev *device, p []byte) (unpin func()) {
	t.Helper()
	unpin, err := dev.PinHost(p)
	if err != nil {
		t.Fatal(err)
	}
	return unpin
}

// TestPinTwice pins the same memory for two cards, for one card twice, and in part, and
// leaves some of it to Close.
func TestPinTwice(t *testing.T) {
	lib := newStandIn(t)
	d := lib.driver()
	p := mapped(t, 1<<20)
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		devs := []*device{open(t, d, "cuda:0"), open(t, d, "cuda:1")}
		var unpin [2]func()
		for i, dev := range devs {
			unpin[i] = pin(t, dev, p)
			pin(t, dev, p)()
			pin(t, dev, p[4096:8192])()
			if !dev.Pinned(p) || !dev.Pinned(p[100:200]) {
				t.Error("what is still pinned is forgotten")
			}
		}
		unpin[order[0]]()
		if devs[order[0]].Pinned(p[:1]) || !devs[order[1]].Pinned(p) {
			t.Error("the wrong card's pin has ended")
		}
		mem := alloc(t, devs[order[1]], 1<<20)
		put(t, mem.All(), 3)
		if err := devs[order[1]].CopyOut(t.Context(), p, mem.All()); err != nil {
			t.Fatal(err)
		}
		if at := kit.DiffAt(p, 3, 0); at >= 0 {
			t.Errorf("byte %d differs", at)
		}
		for _, dev := range devs {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
		unpin[order[1]]()
	}
	dev := open(t, d, "cuda:0")
	pin(t, dev, nil)()
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if _, err := dev.PinHost(p); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("pin for a closed device: %v", err)
	}
}

// TestOthersTakeMemory has other programs use most of a card's memory.
func TestOthersTakeMemory(t *testing.T) {
	lib := newStandIn(t, "memory=104857600")
	d := open(t, lib.driver(), "cuda:0,size=80MiB")
	usage := func(used, free devices.Size) {
		t.Helper()
		u, err := d.Usage()
		if want := (devices.Usage{Total: 80 << 20, Used: used, Free: free}); err != nil || u != want {
			t.Errorf("usage %+v, %v, want %+v", u, err, want)
		}
	}
	mem := alloc(t, d, 10<<20)
	usage(10<<20, 70<<20)
	lib.set(fmt.Sprintf("taken=0:%d", 60<<20))
	usage(10<<20, 30<<20)
	for _, n := range []devices.Size{31 << 20, 15<<20 + 1} { // by both kinds of allocation
		if n == 15<<20+1 {
			lib.set(fmt.Sprintf("taken=0:%d", 80<<20))
		}
		_, err := d.Alloc(t.Context(), n)
		oom, ok := errors.AsType[*devices.OutOfMemoryError](err)
		if !ok || oom.Device != "cuda0" || oom.Asked != n || oom.Free >= n || oom.Free < 10<<20 {
			t.Errorf("%v: %v", n, err)
		}
	}
	usage(10<<20, 10<<20)
	put(t, mem.All(), 1)
	holds(t, mem.All(), 1, 0)
	lib.set()
	usage(10<<20, 70<<20)
	alloc(t, d, 40<<20)
	// A copy between near ranges needs scratch memory.
	lib.set(fmt.Sprintf("taken=0:%d", 50<<20))
	err := d.Copy(t.Context(), part(t, mem, 1, 9<<20), part(t, mem, 0, 9<<20))
	if !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("copy on a full card: %v", err)
	}
	holds(t, mem.All(), 1, 0)
}

// TestRoundingIsNotRefused allocates all of a device whose size is not a multiple of the
// unit of mapped memory.
func TestRoundingIsNotRefused(t *testing.T) {
	d := open(t, newStandIn(t).driver(), "cuda:0,size=20971521")
	mem := alloc(t, d, 20<<20+1)
	if mappingOf(card.BlockOf(mem.All())) != nil {
		t.Error("mapped memory does not fit")
	}
	put(t, mem.All(), 1)
	holds(t, mem.All(), 1, 0)
}

// TestKindsOfMemory checks which calls memory is allocated by.
func TestKindsOfMemory(t *testing.T) {
	lib := newStandIn(t)
	for _, virtual := range []bool{true, false} {
		d := open(t, lib.with(t, fmt.Sprintf("vmm=%d", map[bool]int{true: 1}[virtual])).driver(), "cuda:0")
		small, large := alloc(t, d, virtualFrom-1), alloc(t, d, virtualFrom)
		if mappingOf(card.BlockOf(small.All())) != nil || (mappingOf(card.BlockOf(large.All())) != nil) != virtual {
			t.Errorf("virtual memory %v: wrong kinds", virtual)
		}
		want := map[bool]int{true: 2, false: 1}[virtual]
		if kinds := d.ExportKinds(); len(kinds) != want || kinds[0] != devices.HandleIPC {
			t.Errorf("virtual memory %v: exports %v", virtual, kinds)
		}
	}
}

// TestLongMovesInside copies and fills more than is in flight at a time, inside a card and
// from card to card.
func TestLongMovesInside(t *testing.T) {
	const size = insidePiece + 4097
	lib := newStandIn(t, fmt.Sprint("memory=", uint64(3*size)))
	d := lib.driver()
	one, two := open(t, d, "cuda:0"), open(t, d, "cuda:1")
	from, to, far := alloc(t, one, size), alloc(t, one, size), alloc(t, two, size)
	put(t, from.All(), 7)
	for _, err := range []error{
		one.Copy(t.Context(), to.All(), from.All()),
		two.CopyPeer(t.Context(), far.All(), to.All()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	holds(t, to.All(), 7, 0)
	holds(t, far.All(), 7, 0)
	if err := one.Fill(t.Context(), to.All(), 9); err != nil {
		t.Fatal(err)
	}
	ends := make([]byte, 2)
	for i, at := range []devices.Size{insidePiece - 1, size - 1} {
		if err := one.CopyOut(t.Context(), ends[i:i+1], part(t, to, at, 1)); err != nil || ends[i] != 9 {
			t.Errorf("byte %d is %d, %v", at, ends[i], err)
		}
	}
	holds(t, far.All(), 7, 0)
}
