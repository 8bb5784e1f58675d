package opencl

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

func view(t testing.TB, s devices.Span, access devices.Access) devices.View {
	t.Helper()
	v, err := devices.MapHost(t.Context(), s, access)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMapOffHasNoMap(t *testing.T) {
	mem := alloc(t, open(t, "size=64MiB,map=off"), 100)
	if _, err := devices.MapHost(t.Context(), mem.All(), devices.ReadOnly); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestViewShowsTheBytes(t *testing.T) {
	dev := openShared(t, "size=1GiB")
	mem, other := alloc(t, dev, 1<<20), alloc(t, dev, 1<<20)
	want := noise(1<<20, 6)
	put(t, mem, want)
	v := view(t, part(t, mem, 1000, 5000), devices.ReadWrite)
	if !bytes.Equal(v.Bytes, want[1000:6000]) {
		t.Error("view differs")
	}
	copy(v.Bytes, want)
	v.Release()
	copy(want[1000:6000], want)
	// A command must see bytes written through the view.
	if err := dev.Copy(t.Context(), other.All(), mem.All()); err != nil {
		t.Fatal(err)
	}
	if isMapped(dev.buffer(mem.All())) {
		t.Error("the copy was not a command")
	}
	if !bytes.Equal(get(t, mem), want) || !bytes.Equal(get(t, other), want) {
		t.Error("bytes differ")
	}
}

// TestCopyUnderViews holds views of source and destination, in the same goroutine, during
// copies and fills: none may block, and all results are visible.
func TestCopyUnderViews(t *testing.T) {
	t.Run("host", func(t *testing.T) { copyUnderViews(t, openMapped(t, "size=1GiB")) })
	t.Run("shared", func(t *testing.T) { copyUnderViews(t, openShared(t, "size=1GiB")) })
}

func copyUnderViews(t *testing.T, dev *mappedDevice) {
	t.Helper()
	const n = int(sharedPiece) + 1<<20
	a, b := alloc(t, dev, devices.Size(n)), alloc(t, dev, devices.Size(n))
	want := noise(n, 7)
	put(t, a, want)
	for _, held := range [][]*devices.Memory{{a}, {b}, {a, b}} {
		if err := dev.Fill(t.Context(), b.All(), 0); err != nil {
			t.Fatal(err)
		}
		var views []devices.View
		for _, m := range held {
			views = append(views, view(t, m.All(), devices.ReadOnly))
		}
		if err := dev.Copy(t.Context(), b.All(), a.All()); err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			if !bytes.Equal(v.Bytes, want) {
				t.Error("a view does not show the copy")
			}
		}
		if err := dev.Fill(t.Context(), part(t, b, 1, n-2), 9); err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			v.Release()
		}
		if p := get(t, b); p[0] != want[0] || p[1] != 9 || p[n-2] != 9 || p[n-1] != want[n-1] {
			t.Error("the fill is wrong")
		}
	}
}

func TestViewOutlivesMemoryAndDevice(t *testing.T) {
	dev := openMapped(t, "size=1GiB")
	mem, err := dev.Alloc(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := noise(1<<20, 8)
	put(t, mem, want)
	v := view(t, mem.All(), devices.ReadOnly)
	if err := errors.Join(mem.Release(), dev.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(v.Bytes, want) {
		t.Error("the view lost its bytes")
	}
	if leftOf(dev).done {
		t.Error("the context is gone under a view")
	}
	v.Release()
	if leftOf(dev) != (left{done: true}) {
		t.Error("something is left after the last view")
	}
}

// TestReadersAndWriters lets readers without a pause compete with copies and fills of their
// neighbours in the same buffers, until each of them has done its share. None may starve,
// and the readers' own bytes must not change.
func TestReadersAndWriters(t *testing.T) {
	dev := openShared(t, "size=1GiB")
	const n, keep = 32 << 20, 1 << 20
	reads, copies := 1000, 20
	if testing.Short() {
		copies = 5
	}
	a, b := alloc(t, dev, n), alloc(t, dev, n)
	want := noise(n, 9)
	put(t, a, want)
	put(t, b, want)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var group sync.WaitGroup
	var hungry atomic.Int64
	until := func(share int, fn func() error) {
		hungry.Add(1)
		group.Go(func() {
			for done := 1; ctx.Err() == nil; done++ {
				if err := fn(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				if done == share && hungry.Add(-1) == 0 {
					stop()
				}
			}
		})
	}
	// Progress only counts once all goroutines have started.
	hungry.Add(1)
	for i, mem := range []*devices.Memory{a, b, a, b} {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		until(reads, func() error {
			off := r.IntN(keep - 4096)
			return sees(ctx, part(t, mem, off, 4096), want[off:off+4096])
		})
	}
	for _, pair := range [][2]*devices.Memory{{a, b}, {b, a}} {
		dst, src := pair[0], pair[1]
		until(copies, func() error {
			if err := dev.Copy(ctx, part(t, dst, keep, n-keep), part(t, src, keep, n-keep)); err != nil {
				return err
			}
			return dev.Fill(ctx, part(t, dst, n-4096, 4096), 0)
		})
	}
	if hungry.Add(-1) == 0 {
		stop()
	}
	group.Wait()
	if left := hungry.Load(); left != 0 {
		t.Errorf("%d of 6 starved", left)
	}
	if p := get(t, a); !bytes.Equal(p[:keep], want[:keep]) {
		t.Error("the readers' bytes changed")
	}
}

// sees compares a span, read through a view, with the expected bytes.
func sees(ctx context.Context, s devices.Span, want []byte) error {
	v, err := devices.MapHost(ctx, s, devices.ReadOnly)
	if err != nil {
		return err
	}
	defer v.Release()
	if !bytes.Equal(v.Bytes, want) {
		return errors.New("a reader saw wrong bytes")
	}
	return nil
}

func TestCloseDuringWork(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		mem, err := dev.Alloc(t.Context(), 32<<20)
		if err != nil {
			t.Fatal(err)
		}
		var group, began sync.WaitGroup
		for i := range 4 {
			began.Add(1)
			group.Go(func() { workUntilClosed(t, part(t, mem, i<<20, 1<<20), began.Done) })
		}
		began.Wait()
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	})
}

// workUntilClosed reads and fills the span until its device is closed, and calls began
// after the first round.
func workUntilClosed(t *testing.T, s devices.Span, began func()) {
	t.Helper()
	dev, p := s.Mem.Device(), make([]byte, s.Len)
	began = sync.OnceFunc(began)
	defer began()
	for {
		err := errors.Join(dev.CopyOut(t.Context(), p, s), dev.Fill(t.Context(), s, 1))
		if errors.Is(err, devices.ErrClosed) {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		began()
	}
}
