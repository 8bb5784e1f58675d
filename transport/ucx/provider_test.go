package ucx

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// variants are the transports that this machine can have.
func variants() map[string]Options {
	return map[string]Options{
		"default": {}, "tcp": {Transports: "tcp"}, "posix": {Transports: "posix,self"},
		"cma": {Transports: "posix,cma,self"}, "one-sided": {Transports: "posix,self", OneSided: true},
		"one-sided-tcp": {Transports: "tcp", OneSided: true},
	}
}

func TestSizes(t *testing.T) {
	for name, o := range variants() {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			a, b := newPair(t, o)
			room := 8 << 20
			if kit.Exhaustive() {
				room = 64 << 20
			}
			local, far := a.alloc(t, room), b.alloc(t, room)
			w := open(t, b, a, far)
			for i, n := range []int{1, 2, 7, 8, 63, 4096, 4097, 65535, 1 << 20, 5<<20 + 3, room} {
				seed := uint64(100 + i)
				off := min(13*i, room-n)
				transporttest.Fill(t, local, seed)
				must(t, w, window.Op{Kind: wire.KindPut, Local: local, LocalOff: devices.Offset(off), RemoteOff: uint64(room - n), Size: devices.Size(n)})
				transporttest.Check(t, far, room-n, n, seed, off)
				transporttest.Fill(t, far, seed+50)
				must(t, w, window.Op{Kind: wire.KindGet, Local: local, LocalOff: devices.Offset(off), RemoteOff: uint64(room - n), Size: devices.Size(n)})
				transporttest.Check(t, local, off, n, seed+50, room-n)
			}
		})
	}
}
