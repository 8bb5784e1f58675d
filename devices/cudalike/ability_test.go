package cudalike

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestAbilities opens devices of libraries that lack functions.
func TestAbilities(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		for i := range 8 {
			d := v.onStandin(t)
			whole, err := d.library()
			if err != nil {
				t.Fatal(err)
			}
			want := [3]bool{i&1 != 0, i&2 != 0, i&4 != 0}
			if !want[0] {
				whole.peer = nil
			}
			if !want[1] {
				whole.ipc = nil
			}
			if !want[2] {
				whole.pin = nil
			}
			want[0], want[1], want[2] = whole.peer != nil, whole.ipc != nil, whole.pin != nil
			dev := v.openOn(t, d, 0)
			_, peer := dev.(devices.PeerCopier)
			_, out := dev.(devices.Exporter)
			_, in := dev.(devices.Importer)
			_, pin := dev.(devices.Pinner)
			if peer != want[0] || out != want[1] || in != want[1] || pin != want[2] {
				t.Errorf("peer %v, export %v, import %v, pin %v; want %v", peer, out, in, pin, want)
			}
			holds(t, filled(t, dev, 1, 1000), 1)
		}
	})
}

// TestFewerFacts opens a card of a library that provides neither its address nor its ID.
func TestFewerFacts(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		d := v.onStandin(t)
		table, err := d.library()
		if err != nil {
			t.Fatal(err)
		}
		table.pci, table.uuid = nil, nil
		dev := v.openOn(t, d, 1)
		if in := dev.Info(); in.PCI != "" || in.UUID != "" || in.NUMA != -1 || in.Model == "" {
			t.Errorf("%+v", in)
		}
		holds(t, filled(t, dev, 1, 1000), 1)
	})
}

// TestVendorsAbilities checks the abilities of the vendors' libraries.
func TestVendorsAbilities(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		_, peer := dev.(devices.PeerCopier)
		_, share := dev.(devices.Exporter)
		_, pin := dev.(devices.Pinner)
		if !peer || !share || pin != (v.name != Cambricon) {
			t.Errorf("peer %v, export %v, pin %v", peer, share, pin)
		}
	})
}

// TestPeers copies between two cards in both directions at once, and not if they can't
// access each other.
func TestPeers(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		first, second := v.pair(t)
		const n = 2<<20 + 100
		a, b := filled(t, first, 1, n), filled(t, second, 2, n)
		c, d := filled(t, first, 0, n), filled(t, second, 0, n)
		errs := make(chan error, 2)
		go func() { errs <- devices.CopyPeer(t.Context(), c.All(), b.All()) }()
		go func() { errs <- devices.CopyPeer(t.Context(), d.All(), a.All()) }()
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Fatal(err)
		}
		holds(t, c, 2)
		holds(t, d, 1)
		part := func(m *devices.Memory, off, n int) devices.Span {
			s, err := m.Span(devices.Range{Off: devices.Offset(off), Len: devices.Size(n)})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if err := devices.CopyPeer(t.Context(), part(c, 64, 1000), part(d, 1<<20, 1000)); err != nil {
			t.Error(err)
		}
		got := make([]byte, 1000)
		if err := first.CopyOut(t.Context(), got, part(c, 64, 1000)); err != nil || string(got) != string(kit.Bytes(1, 1<<20, 1000)) {
			t.Errorf("a part: %v", err)
		}
		if err := devices.CopyPeer(t.Context(), c.All(), part(d, 0, 9)); !errors.Is(err, devices.ErrRange) {
			t.Errorf("of other lengths: %v", err)
		}
	})
}

func TestPeersOutOfReach(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		v.configure(t, "peer=0\n")
		first, second := v.pair(t)
		a, b := filled(t, first, 1, 100), filled(t, second, 2, 100)
		for range 2 {
			if err := devices.CopyPeer(t.Context(), a.All(), b.All()); !errors.Is(err, devices.ErrUnsupported) {
				t.Errorf("%v", err)
			}
		}
		holds(t, a, 1)
	})
}

// pages returns n bytes of memory outside of Go's heap.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
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

func TestPinning(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		p := pages(t, 1<<20)
		dev := v.open(t, 0)
		if _, ok := dev.(devices.Pinner); !ok {
			if v.name != Cambricon { // which only allocates pinned memory
				t.Error("no pinning")
			}
			return
		}
		unpin, pinned := devices.PinHost(dev, p)
		if !pinned {
			t.Fatal("not pinned")
		}
		again, pinnedAgain := devices.PinHost(dev, p)
		if !pinnedAgain {
			t.Error("not pinned again")
		}
		again()
		mem := filled(t, dev, 4, len(p))
		if err := dev.CopyOut(t.Context(), p, mem.All()); err != nil || string(p) != string(kit.Bytes(4, 0, len(p))) {
			t.Errorf("copy to pinned memory: %v", err)
		}
		unpin()
		unpin()
		oddly, odd := devices.PinHost(dev, p[1:])
		if odd == (v.name == Ascend) {
			t.Errorf("memory that begins within a page: pinned %v", odd)
		}
		oddly()
		if _, none := devices.PinHost(dev, nil); none {
			t.Error("nothing is pinned")
		}
		// Memory that is still pinned is unpinned with the device.
		left, pinned := devices.PinHost(dev, p[:1<<12])
		if !pinned {
			t.Error("a page is not pinned")
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		left()
	})
}

// thereAndBack writes content to host memory, and copies that to a device and back.
func thereAndBack(t *testing.T, dev devices.Device, host []byte) {
	t.Helper()
	mem := filled(t, dev, uint64(len(host)), len(host))
	if err := dev.CopyOut(t.Context(), host, mem.All()); err != nil {
		t.Fatal(err)
	}
	if string(host) != string(kit.Bytes(uint64(len(host)), 0, len(host))) {
		t.Errorf("%d bytes came wrong", len(host))
	}
	if err := dev.CopyIn(t.Context(), mem.All(), host); err != nil {
		t.Fatal(err)
	}
	holds(t, mem, uint64(len(host)))
}

// TestPinningOverlaps pins overlapping ranges for two devices, copies every mixture of
// pinned and unpinned memory, and ends the use of one device before that of the other.
func TestPinningOverlaps(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		const page = 1 << 12
		p := pages(t, 64*page)
		first, second := v.pair(t)
		devs := []devices.Device{first, second}
		if _, ok := devs[0].(devices.Pinner); !ok {
			return
		}
		var unpin []func()
		for i, at := range [][2]int{{8, 24}, {8, 24}, {16, 32}, {40, 48}, {48, 56}} {
			undo, pinned := devices.PinHost(devs[i%2], p[at[0]*page:at[1]*page])
			if pinned == (i == 2) {
				t.Errorf("pages %d to %d: pinned %v", at[0], at[1], pinned)
			}
			unpin = append(unpin, undo)
		}
		for round, undo := range unpin {
			for _, at := range [][2]int{{0, 64}, {8, 24}, {16, 32}, {0, 9}, {31, 33}, {40, 56}, {44, 52}} {
				thereAndBack(t, devs[round%2], p[at[0]*page:at[1]*page])
			}
			if !strings.Contains(v.left(t), fmt.Sprintf(" %d pinned", []int{3, 3, 2, 2, 1}[round])) {
				t.Errorf("after %d ends: %s", round, v.left(t))
			}
			undo()
		}
		if left := v.left(t); !strings.Contains(left, " 0 pinned") {
			t.Errorf("at the end: %s", left)
		}
	})
}
