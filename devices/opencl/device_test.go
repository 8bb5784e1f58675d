package opencl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
)

func TestConformance(t *testing.T) {
	// The longest copy of the suite takes a quarter of a device of 40 MiB.
	params := "size=40MiB"
	if testing.Short() {
		params = "size=16MiB"
	}
	for name, opener := range openers(params) {
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devices.Device { return opener(t) })
		})
	}
}

func TestRoundTrip(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		for _, n := range []int{1, 3, 4095, 4097, 1<<20 + 13, 35<<20 + 1} {
			mem := alloc(t, dev, devices.Size(n))
			want := noise(n, uint64(n))
			put(t, mem, want)
			if !bytes.Equal(get(t, mem), want) {
				t.Errorf("%d bytes differ", n)
			}
			off, m := n/3, n/2
			p := make([]byte, m)
			if err := dev.CopyOut(t.Context(), p, part(t, mem, off, m)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(p, want[off:off+m]) {
				t.Errorf("%d bytes at %d of %d differ", m, off, n)
			}
		}
	})
}

func TestCopyBetweenMemories(t *testing.T) {
	// More than one piece of a copy inside shared memory.
	const n = int(sharedPiece) + 1<<20 + 7
	source, old, got := noise(n, 1), noise(n, 2), make([]byte, n)
	want := bytes.Clone(old)
	copy(want[5:n-5], source[3:])
	kinds(t, func(t *testing.T, dev devices.Device) {
		a, b := alloc(t, dev, devices.Size(n)), alloc(t, dev, devices.Size(n))
		put(t, a, source)
		put(t, b, old)
		if err := dev.Copy(t.Context(), part(t, b, 5, n-10), part(t, a, 3, n-10)); err != nil {
			t.Fatal(err)
		}
		for mem, want := range map[*devices.Memory][]byte{a: source, b: want} {
			if getInto(t, got, mem); !bytes.Equal(got, want) {
				t.Error("bytes differ")
			}
		}
	})
}

func TestCopyOverlapIsMemmove(t *testing.T) {
	// More than one piece of a copy through a buffer, and more than two pieces of a copy in
	// place.
	const n = int(moves.HostPiece) + 2<<20 + 5
	first, want, got := noise(n, 3), make([]byte, n), make([]byte, n)
	kinds(t, func(t *testing.T, dev devices.Device) {
		mem := alloc(t, dev, devices.Size(n))
		for _, distance := range []int{0, 1, 13, 4096, 1<<20 + 1, 4 << 20, 13 << 20} {
			for _, up := range []bool{false, true} {
				dst, src := 0, distance
				if up {
					dst, src = distance, 0
				}
				copy(want, first)
				copy(want[dst:], first[src:src+n-distance])
				put(t, mem, first)
				if err := dev.Copy(t.Context(), part(t, mem, dst, n-distance), part(t, mem, src, n-distance)); err != nil {
					t.Fatal(err)
				}
				if getInto(t, got, mem); !bytes.Equal(got, want) {
					t.Errorf("distance %d, up %v: bytes differ", distance, up)
				}
			}
		}
	})
}

// TestCopyOverlapInPieces copies more than one piece through the maps, up and down.
func TestCopyOverlapInPieces(t *testing.T) {
	dev := openShared(t, "size=1GiB")
	const n, distance = int(sharedPiece) + 2<<20, 1 << 20
	mem := alloc(t, dev, devices.Size(n))
	want, got := noise(n, 10), make([]byte, n)
	put(t, mem, want)
	for _, move := range [][2]int{{distance, 0}, {0, distance}} {
		dst, src := move[0], move[1]
		if err := dev.Copy(t.Context(), part(t, mem, dst, n-distance), part(t, mem, src, n-distance)); err != nil {
			t.Fatal(err)
		}
		copy(want[dst:n-distance+dst], want[src:n-distance+src])
		if getInto(t, got, mem); !bytes.Equal(got, want) {
			t.Errorf("%d to %d: bytes differ", src, dst)
		}
	}
}

func TestCopyInsideOneMemory(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		mem := alloc(t, dev, 3<<20)
		want := noise(3<<20, 4)
		put(t, mem, want)
		if err := dev.Copy(t.Context(), part(t, mem, 2<<20+1, 1<<20-1), part(t, mem, 0, 1<<20-1)); err != nil {
			t.Fatal(err)
		}
		copy(want[2<<20+1:], want[:1<<20-1])
		if !bytes.Equal(get(t, mem), want) {
			t.Error("bytes differ")
		}
	})
}

func TestFill(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		const n = 1 << 20
		mem := alloc(t, dev, n)
		want := noise(n, 5)
		put(t, mem, want)
		for i, r := range [][2]int{{0, 0}, {0, 1}, {7, 3}, {15, 18}, {16, 16}, {31, 1000}, {n / 2, n / 2}, {n - 1, 1}} {
			value := byte(0xA0 + i)
			if err := dev.Fill(t.Context(), part(t, mem, r[0], r[1]), value); err != nil {
				t.Fatal(err)
			}
			copy(want[r[0]:], bytes.Repeat([]byte{value}, r[1]))
			if !bytes.Equal(get(t, mem), want) {
				t.Fatalf("fill %v: bytes differ", r)
			}
		}
	})
}

func TestRangesAreChecked(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		mem := alloc(t, dev, 100)
		outside := devices.Span{Mem: mem, Range: devices.Range{Off: 50, Len: 51}}
		other := devices.Span{Mem: alloc(t, open(t, "size=64MiB"), 100), Range: devices.Range{Len: 10}}
		ctx := t.Context()
		for name, err := range map[string]error{
			"in":      dev.CopyIn(ctx, outside, make([]byte, 51)),
			"out":     dev.CopyOut(ctx, make([]byte, 51), outside),
			"short":   dev.CopyOut(ctx, make([]byte, 9), part(t, mem, 0, 10)),
			"copy":    dev.Copy(ctx, part(t, mem, 0, 10), part(t, mem, 20, 11)),
			"fill":    dev.Fill(ctx, outside, 1),
			"foreign": dev.Copy(ctx, part(t, mem, 0, 10), other),
			"none":    dev.Fill(ctx, devices.Span{}, 1),
		} {
			if !errors.Is(err, devices.ErrRange) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := dev.Alloc(ctx, 0); !errors.Is(err, devices.ErrRange) {
			t.Errorf("alloc 0: %v", err)
		}
	})
}

func TestOutOfMemory(t *testing.T) {
	kindsOf(t, "size=100MiB", func(t *testing.T, dev devices.Device) {
		info := dev.Info()
		held := alloc(t, dev, 60*devices.MiB)
		_, err := dev.Alloc(t.Context(), 50*devices.MiB)
		var oom *devices.OutOfMemoryError
		if !errors.As(err, &oom) || !errors.Is(err, devices.ErrOutOfMemory) {
			t.Fatalf("got %v", err)
		}
		want := devices.OutOfMemoryError{Device: info.Name, Asked: 50 * devices.MiB, Free: info.Total - 60*devices.MiB}
		if *oom != want {
			t.Errorf("got %+v, want %+v", *oom, want)
		}
		u, err := dev.Usage()
		if err != nil || u.Used != held.Size() || u.Total != info.Total || u.Free > u.Total-u.Used {
			t.Errorf("usage %+v, %v", u, err)
		}
		core(dev).info.MaxAlloc = devices.MiB
		if _, err := dev.Alloc(t.Context(), 2*devices.MiB); !errors.Is(err, devices.ErrOutOfMemory) {
			t.Errorf("above MaxAlloc: %v", err)
		}
	})
}

func TestHostMemoryLimits(t *testing.T) {
	dev := openMapped(t, "size=1GiB")
	dev.system = fakeSystem(t, "MemAvailable:      10240 kB\n")
	_, err := dev.Alloc(t.Context(), 11*devices.MiB)
	var oom *devices.OutOfMemoryError
	if !errors.As(err, &oom) || oom.Free != 10*devices.MiB {
		t.Errorf("got %v", err)
	}
	u, err := dev.Usage()
	if err != nil || u.Free != 10*devices.MiB || u.Used != 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
}

// TestNoMemoryForFile allocates in a file whose second page can't be had.
func TestNoMemoryForFile(t *testing.T) {
	dev := openMapped(t, "size=1GiB")
	page := os.Getpagesize()
	f, err := memfd.Create("short", int64(page))
	require(t, "create", err)
	t.Cleanup(func() { require(t, "close", f.Close()) })
	if _, err = dev.AllocIn(t.Context(), f, devices.Size(2*page)); errors.Is(err, devices.ErrUnsupported) {
		t.Skip(err)
	}
	if u, use := dev.Usage(); !errors.Is(err, devices.ErrOutOfMemory) || use != nil || u.Used != 0 {
		t.Errorf("%v; %v in use, %v", err, u.Used, use)
	}
}

func TestContextEndsTheWork(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		mem := alloc(t, dev, 100)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, allocErr := dev.Alloc(ctx, 10)
		for name, err := range map[string]error{
			"alloc": allocErr,
			"in":    dev.CopyIn(ctx, mem.All(), make([]byte, 100)),
			"out":   dev.CopyOut(ctx, make([]byte, 100), mem.All()),
			"copy":  dev.Copy(ctx, part(t, mem, 0, 10), part(t, mem, 20, 10)),
			"fill":  dev.Fill(ctx, mem.All(), 1),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// countdown is a context that ends after n checks.
type countdown struct {
	context.Context //nolint:containedctx // it is a context itself
	n               int
}

func (c *countdown) Err() error {
	c.n--
	if c.n < 0 {
		return context.Canceled
	}
	return nil
}

func TestContextIsLookedAtBetweenPieces(t *testing.T) {
	// Every copy has two pieces or more, and the context ends after the first.
	const n = int(sharedPiece) + 1<<20
	p := make([]byte, n)
	kinds(t, func(t *testing.T, dev devices.Device) {
		mem := alloc(t, dev, devices.Size(n))
		if err := dev.CopyIn(&countdown{t.Context(), 2}, mem.All(), p); !errors.Is(err, context.Canceled) {
			t.Errorf("in: %v", err)
		}
		if err := dev.CopyOut(&countdown{t.Context(), 2}, p, mem.All()); !errors.Is(err, context.Canceled) {
			t.Errorf("out: %v", err)
		}
		err := dev.Copy(&countdown{t.Context(), 2}, part(t, mem, 1, n-1), part(t, mem, 0, n-1))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("copy: %v", err)
		}
	})
}

func TestClosed(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		mem, err := dev.Alloc(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(dev.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
		_, allocErr := dev.Alloc(t.Context(), 10)
		_, usageErr := dev.Usage()
		_, mapErr := devices.MapHost(t.Context(), mem.All(), devices.ReadOnly)
		if _, can := dev.(devices.HostMapper); !can {
			mapErr = devices.ErrClosed
		}
		for name, err := range map[string]error{
			"alloc": allocErr, "usage": usageErr, "map": mapErr,
			"in":   dev.CopyIn(t.Context(), mem.All(), make([]byte, 100)),
			"fill": dev.Fill(t.Context(), mem.All(), 1),
		} {
			if !errors.Is(err, devices.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
		if leftOf(dev) != (left{done: true}) {
			t.Error("something is left after Close")
		}
	})
}

func TestInfo(t *testing.T) {
	dev := open(t, "size=1GiB")
	info := dev.Info()
	if info.Name != "ocl0" || info.Family != Family || info.Total != devices.GiB || info.Model == "" ||
		info.MaxAlloc == 0 || info.MaxAlloc > info.Total || info.Align == 0 {
		t.Errorf("info %+v", info)
	}
	t.Logf("%+v", info)
	if dev.Epoch() == 0 || dev.Epoch() == open(t, "size=1GiB").Epoch() {
		t.Errorf("epoch %d", dev.Epoch())
	}
}
