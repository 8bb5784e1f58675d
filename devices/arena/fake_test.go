package arena

import (
	"context"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// fakeDevice only counts bytes and has no memory, so that tests can use terabytes.
type fakeDevice struct {
	devices.Device
	info devices.Info
	// beforeAlloc, if set, runs in every Alloc; its error is returned.
	beforeAlloc func(n devices.Size) error

	mu     sync.Mutex
	epoch  devices.Epoch
	used   devices.Size
	allocs int
}

func newFake(total, maxAlloc devices.Size) *fakeDevice {
	return &fakeDevice{
		info:  devices.Info{Name: "fake0", Total: total, MaxAlloc: maxAlloc},
		epoch: 1,
	}
}

func (d *fakeDevice) Info() devices.Info { return d.info }

func (d *fakeDevice) Epoch() devices.Epoch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.epoch
}

func (d *fakeDevice) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch++
	d.used = 0
}

func (d *fakeDevice) inUse() devices.Size {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

func (d *fakeDevice) Alloc(_ context.Context, n devices.Size) (*devices.Memory, error) {
	if d.beforeAlloc != nil {
		if err := d.beforeAlloc(n); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.allocs++
	if n > d.info.Total-d.used || (d.info.MaxAlloc > 0 && n > d.info.MaxAlloc) {
		return nil, &devices.OutOfMemoryError{Device: d.info.Name, Asked: n, Free: d.info.Total - d.used}
	}
	d.used += n
	epoch := d.epoch
	return devices.NewMemory(devices.MemorySpec{Device: d, Size: n, Epoch: epoch, Free: func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.epoch == epoch {
			d.used -= n
		}
		return nil
	}}), nil
}

func newArena(t testing.TB, dev devices.Device, o Options) *Arena {
	t.Helper()
	a, err := New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func mustAlloc(t testing.TB, a *Arena, n devices.Size) Lease {
	t.Helper()
	l, err := a.Alloc(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustFree(t testing.TB, a *Arena, l Lease) {
	t.Helper()
	if err := a.Free(l); err != nil {
		t.Fatal(err)
	}
}

// part returns pages [from, to) of a lease of 4 KiB pages.
func part(t testing.TB, l Lease, from, to int) Lease {
	t.Helper()
	s, err := l.Span.Sub(devices.Offset(from)*4096, devices.Size(to-from)*4096)
	if err != nil {
		t.Fatal(err)
	}
	return Lease{Slab: l.Slab, Span: s}
}
