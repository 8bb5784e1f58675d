package cuda

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// registered reports whether the driver has registered any of some memory, at whatever
// request.
func registered(t *testing.T, d *device, p []byte) bool {
	t.Helper()
	err := d.On(func() error { return d.api.hostRegister(p) })
	if err == nil {
		err = d.On(func() error { return d.api.hostUnregister(p) })
		if err != nil {
			t.Fatal(err)
		}
		return false
	}
	if codeOf(err) != codeAlreadyRegistered {
		t.Fatal(err)
	}
	return true
}

// TestPinOverlapping pins overlapping ranges for two cards, in each order, and checks that
// every mixture of pinned and unpinned memory is copied correctly.
func TestPinOverlapping(t *testing.T) {
	const page = 4096
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			lib := newStandIn(t)
			d := lib.driver()
			devs := []*device{open(t, d, "cuda:0"), open(t, d, "cuda:1")}
			p := mapped(t, 64*page)
			unpin := []func(){}
			for i, at := range [][2]int{{8, 24}, {16, 32}, {40, 48}, {48, 56}} {
				// A range that overlaps with another need not be pinned.
				if undo, err := devs[(first+i)%2].PinHost(p[at[0]*page : at[1]*page]); err == nil {
					unpin = append(unpin, undo)
				}
			}
			for _, at := range [][2]int{{0, 64}, {8, 24}, {16, 32}, {8, 32}, {0, 9}, {31, 33}, {40, 56}, {44, 52}} {
				for _, dev := range devs {
					thereAndBack(t, dev, p[at[0]*page:at[1]*page])
				}
			}
			for _, undo := range unpin {
				undo()
			}
			if registered(t, devs[0], p) {
				t.Error("something is registered still")
			}
		})
	}
}

// thereAndBack copies host memory to a card and back.
func thereAndBack(t *testing.T, dev *device, host []byte) {
	t.Helper()
	seed := uint64(len(host)) + uint64(dev.entry.Ordinal)
	mem := alloc(t, dev, devices.Size(len(host)))
	copy(host, kit.Bytes(seed, 0, len(host)))
	if err := dev.CopyIn(t.Context(), mem.All(), host); err != nil {
		t.Fatalf("copy from %d bytes: %v", len(host), err)
	}
	clear(host)
	if err := dev.CopyOut(t.Context(), host, mem.All()); err != nil {
		t.Fatalf("copy to %d bytes: %v", len(host), err)
	}
	if at := kit.DiffAt(host, seed, 0); at >= 0 {
		t.Errorf("byte %d of %d differs", at, len(host))
	}
}

// TestUnpinLeavesOthers ends the use of one card, by unpinning and by closing, while the
// other uses the same memory, or a part of it.
func TestUnpinLeavesOthers(t *testing.T) {
	for name, closing := range map[string]bool{"unpin": false, "close": true} {
		for _, size := range []int{1 << 16, 1 << 13} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				d := newStandIn(t).driver()
				a, b := open(t, d, "cuda:0"), open(t, d, "cuda:1")
				p := mapped(t, 1<<16)
				endA, endB := pin(t, a, p), pin(t, b, p[:size])
				if closing {
					if err := a.Close(); err != nil {
						t.Fatal(err)
					}
				}
				endA()
				if !registered(t, b, p[:size]) {
					t.Error("the other card's pinning was taken away")
				}
				endB()
				if registered(t, b, p) {
					t.Error("it is registered still")
				}
			})
		}
	}
}
