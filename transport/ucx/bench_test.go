package ucx

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// window32 is the number of puts in progress, as in ucx_perftest.
const window32 = 32

// BenchmarkPut puts into a peer process, 32 at a time.
func BenchmarkPut(b *testing.B) {
	for name, o := range variants() {
		for _, own := range []bool{false, true} {
			for _, n := range []int{8, 1 << 20, 64 << 20} {
				b.Run(fmt.Sprintf("%s/own=%v/%d", name, own, n), func(b *testing.B) {
					benchPut(b, peerPlan{Options: o, Size: n, Own: own})
				})
			}
		}
	}
}

func benchPut(b *testing.B, plan peerPlan) {
	b.Helper()
	s, _, w := meet(b, plan)
	local := benchLocal(b, s, plan)
	op := window.Op{Kind: wire.KindPut, Local: local, Size: devices.Size(plan.Size)}
	must(b, w, op)
	done := make(result, window32)
	b.SetBytes(int64(plan.Size))
	b.ReportAllocs()
	b.ResetTimer()
	begun := 0
	for ended := 0; ended < b.N; ended++ {
		for ; begun < b.N && begun < ended+window32; begun++ {
			w.Start(&op, done)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

func benchLocal(b *testing.B, s *side, plan peerPlan) *region.Buffer {
	b.Helper()
	if !plan.Own {
		return s.alloc(b, plan.Size)
	}
	mem, free, err := s.ctx.alloc(plan.Size)
	if err != nil {
		b.Fatal(err)
	}
	local, err := s.table.Register(mem)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = local.Close(b.Context()); _ = free() })
	return local
}
