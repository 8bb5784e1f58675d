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

// Simulated is n bytes of a simulated device that has room for twice as many;
// both end with the test. It may be given to another process.
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

// Fill writes the content that the seed names to a whole buffer.
func Fill(t testing.TB, b *region.Buffer, seed uint64) {
	t.Helper()
	FillPart(t, b, seed, int(b.Size()))
}

// FillPart writes the first n bytes of the content that the seed names to the
// beginning of a buffer.
func FillPart(t testing.TB, b *region.Buffer, seed uint64, n int) {
	t.Helper()
	if err := b.Store(t.Context(), 0, transport.HostSpan(kit.Bytes(seed, 0, n))); err != nil {
		t.Fatal(err)
	}
}

// Check demands the n bytes from off of a buffer to be those that the content
// of the seed has from at.
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
