package transport_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/transport"
)

const testChunk = 16 * devices.KiB

func newEngine(tb testing.TB, o transport.Options) *transport.Engine {
	tb.Helper()
	e, err := transport.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
		if s := e.Stats(); s.PinnedInUse != 0 || s.PinnedTotal != 0 {
			tb.Errorf("slots left behind: %v in use, %v in all", s.PinnedInUse, s.PinnedTotal)
		}
	})
	return e
}

// ends makes one end of each kind. Two of one kind are two devices.
func ends(tb testing.TB) map[string]transporttest.End {
	tb.Helper()
	return map[string]transporttest.End{
		"host":    transporttest.HostBytes(),
		"file":    transporttest.Files("host", tb.TempDir()),
		"file2":   transporttest.Files("host2", tb.TempDir()),
		"sealed":  transporttest.Sealed("host"),
		"sealed2": transporttest.Sealed("host2"),
		"plain":   transporttest.Device(newRAM("plain")),
		"plain2":  transporttest.Device(newRAM("plain2")),
		"mapped":  transporttest.Device(newMappedRAM("mapped")),
		"mapped2": transporttest.Device(newMappedRAM("mapped2")),
		"peer":    transporttest.Device(newPeerRAM("peer")),
		"sim0":    transporttest.Device(newSim(tb, 0, false)),
		"sim1":    transporttest.Device(newSim(tb, 1, true)),
		"sim2":    transporttest.Device(newSim(tb, 2, false)),
	}
}

func newSim(tb testing.TB, ordinal devices.Ordinal, mapped bool) devices.Device {
	tb.Helper()
	d := sim.New(ordinal, sim.Params{Size: devices.GiB, Mapped: mapped})
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// pairs is the table of doc.go: from, to, the path, and the device for which it
// is counted.
func pairs() []struct {
	src, dst string
	path     transport.Path
	device   devices.Name
} {
	return []struct {
		src, dst string
		path     transport.Path
		device   devices.Name
	}{
		{"host", "host", transport.PathMapped, ""},
		{"host", "plain", transport.PathH2D, "plain"},
		{"host", "mapped", transport.PathH2D, "mapped"},
		{"host", "file", transport.PathH2D, "host"},
		{"plain", "host", transport.PathD2H, "plain"},
		{"mapped", "host", transport.PathD2H, "mapped"},
		{"file", "host", transport.PathD2H, "host"},
		{"plain", "plain", transport.PathD2D, "plain"},
		{"mapped", "mapped", transport.PathD2D, "mapped"},
		{"file", "file", transport.PathD2D, "host"},
		{"plain", "peer", transport.PathPeer, "peer"},
		{"mapped", "mapped2", transport.PathMapped, "mapped2"},
		{"plain", "mapped", transport.PathMapped, "mapped"},
		{"mapped", "plain", transport.PathMapped, "plain"},
		{"peer", "plain", transport.PathStaged, "plain"},
		{"plain", "plain2", transport.PathStaged, "plain2"},
		{"file", "file2", transport.PathStaged, "host2"},
		{"file", "plain", transport.PathH2D, "plain"},
		{"file", "mapped", transport.PathH2D, "mapped"},
		{"plain", "file", transport.PathD2H, "plain"},
		{"mapped", "file", transport.PathD2H, "mapped"},
		{"host", "sealed", transport.PathH2D, "host"},
		{"sealed", "host", transport.PathD2H, "host"},
		{"sealed", "sealed", transport.PathD2D, "host"},
		{"sealed", "sealed2", transport.PathStaged, "host2"},
		{"sealed", "file", transport.PathD2D, "host"},
		{"file", "sealed", transport.PathD2D, "host"},
		{"plain", "sealed", transport.PathD2H, "plain"},
		{"sealed", "mapped", transport.PathH2D, "mapped"},
		{"host", "sim0", transport.PathH2D, "sim0"},
		{"sim1", "host", transport.PathD2H, "sim1"},
		{"sim1", "sim1", transport.PathD2D, "sim1"},
		{"sim0", "sim1", transport.PathMapped, "sim1"},
		{"sim1", "sim0", transport.PathMapped, "sim0"},
		{"sim0", "sim2", transport.PathStaged, "sim2"},
		{"sim0", "file", transport.PathD2H, "sim0"},
		{"file", "sim1", transport.PathH2D, "sim1"},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range pairs() {
		t.Run(c.src+"-"+c.dst, func(t *testing.T) {
			t.Parallel()
			transporttest.Run(t, func(t *testing.T) transporttest.Pair {
				all := ends(t)
				return transporttest.Pair{
					Engine: newEngine(t, transport.Options{ChunkSize: testChunk}),
					Chunk:  testChunk,
					Src:    all[c.src], Dst: all[c.dst],
					Path: c.path, Device: c.device,
					SameEnd: c.src == c.dst,
				}
			})
		})
	}
}
