package tcp

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// TestGoroutinesRunNearTheNetworkCard moves device memory, so that a channel has
// all of its goroutines, and checks which node they have entered.
func TestGoroutinesRunNearTheNetworkCard(t *testing.T) {
	kit.Check(t)
	var entered, left, wrong atomic.Int64
	o := transport.Options{
		Near: func(local netip.Addr) int {
			if local.IsLoopback() {
				return 7
			}
			return -1
		},
		Enter: func(node int) func() {
			if node != 7 {
				wrong.Add(1)
			}
			entered.Add(1)
			return func() { left.Add(1) }
		},
	}
	e, err := transport.New(o)
	if err != nil {
		t.Fatal(err)
	}
	x, y := sockets(t, "tcp")
	a := newSide(t, x, Options{Engine: e})
	b := newSide(t, y, Options{})
	const size = 4 * testChunk
	src, dst := a.sim(t, size, sim.Params{}), b.host(t, size)
	if err = a.do(t, Plan{Kind: wire.KindPut, Local: src, Key: b.grant(t, dst, both).Key, Size: size}); err != nil {
		t.Fatal(err)
	}
	a.channel.Close()
	a.channel.running.Wait()
	// The reader, the writer and the stager.
	if entered.Load() != 3 || left.Load() != 3 || wrong.Load() != 0 {
		t.Errorf("%d goroutines have entered a node, %d have left it, %d another one", entered.Load(), left.Load(), wrong.Load())
	}
}
