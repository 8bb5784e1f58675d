package transporttest

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Simulated returns n bytes of a simulated device that has room for twice as many; both end with
// the test. The memory can be exported to another process.
func Simulated(t testing.TB, n devices.Size, p sim.Params) *devices.Memory {
	t.Helper()
	p.Size = 2 * n
	dev := sim.New(0, p)
	m, err := devices.AllocShared(t.Context(), dev, n, devices.HandleMemfd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Release(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Fill writes the content with the given seed to a whole buffer.
func Fill(t testing.TB, b *region.Buffer, seed uint64) {
	t.Helper()
	FillPart(t, b, seed, int(b.Size()))
}

// FillPart writes the first n bytes of the content with the given seed to the start of a buffer.
func FillPart(t testing.TB, b *region.Buffer, seed uint64, n int) {
	t.Helper()
	if err := b.Store(t.Context(), 0, transport.HostSpan(kit.Bytes(seed, 0, n))); err != nil {
		t.Fatal(err)
	}
}

// Check fails the test unless the n bytes of a buffer from off on equal those of the seed's
// content from at on.
func Check(t testing.TB, b *region.Buffer, off, n int, seed uint64, at int) {
	t.Helper()
	got := make([]byte, n)
	if err := b.Load(t.Context(), transport.HostSpan(got), devices.Offset(off)); err != nil {
		t.Fatal(err)
	}
	if i := kit.DiffAt(got, seed, int64(at)); i >= 0 {
		t.Fatalf("byte %d of [%d, %d) is not that of %d", off+i, off, off+n, at+i)
	}
}
