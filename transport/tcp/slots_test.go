package tcp

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// A channel whose engine has no slot left can still move device memory, and holds
// no slots while it is idle.
func TestNoSlotLeft(t *testing.T) {
	a, b := sides(t, "tcp", Options{})
	const n = 5*testChunk + 77
	local, remote := a.sim(t, n, sim.Params{}), b.sim(t, n, sim.Params{})
	for _, s := range []*side{a, b} {
		for p, ok := s.engine.Slots().TryGet(devices.MiB); ok; p, ok = s.engine.Slots().TryGet(devices.MiB) {
			t.Cleanup(p.Release)
		}
	}
	d := b.grant(t, remote, both)
	for _, kind := range []wire.Kind{wire.KindPut, wire.KindGet} {
		transporttest.Fill(t, local, 1)
		transporttest.Fill(t, remote, 2)
		if err := a.do(t, Plan{Kind: kind, Local: local, Key: d.Key, Size: n}); err != nil {
			t.Fatal(err)
		}
		seed := uint64(1)
		if kind == wire.KindGet {
			seed = 2
		}
		transporttest.Check(t, local, 0, n, seed, 0)
		transporttest.Check(t, remote, 0, n, seed, 0)
	}
}
