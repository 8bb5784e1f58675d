package commtest

import (
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/transport/comm"
)

// Benchmark measures puts of several sizes, and tags.
func Benchmark(b *testing.B, w Way) {
	for name, n := range map[string]devices.Size{"Put8B": 8, "Put4KiB": 4 << 10, "Put1MiB": 1 << 20, "Put64MiB": 64 << 20} {
		b.Run(name, func(b *testing.B) {
			Put(b, w, n, func(put func()) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					put()
				}
			})
		})
	}
	b.Run("TagRoundTrip", func(b *testing.B) { benchmarkTags(b, w) })
}

// Put runs fn with a function that puts n bytes from one rank to another.
func Put(b *testing.B, w Way, n devices.Size, fn func(put func())) {
	b.Helper()
	job := w.pair(b)
	local, remote := job.host(b, 0, n), job.host(b, 1, n)
	d := job.share(b, 1, 0, remote, both)
	transporttest.Fill(b, local, 1)
	fn(func() {
		if err := job.ranks[0].Put(b.Context(), 1, comm.Op{Local: local, Remote: d, Size: n}); err != nil {
			b.Fatal(err)
		}
	})
	b.StopTimer()
	transporttest.Check(b, remote, 0, int(n), 1, 0)
}

// benchmarkTags sends a tag there and back.
func benchmarkTags(b *testing.B, w Way) {
	b.Helper()
	job := w.pair(b)
	var echo sync.WaitGroup
	defer echo.Wait()
	echo.Go(func() {
		for {
			tag, err := job.ranks[1].RecvTag(b.Context(), 0)
			if err != nil || tag == 0 {
				return
			}
			if err := job.ranks[1].SendTag(b.Context(), 0, tag); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		if err := job.ranks[0].SendTag(b.Context(), 1, 7); err != nil {
			b.Fatal(err)
		}
		if tag, err := job.ranks[0].RecvTag(b.Context(), 1); tag != 7 || err != nil {
			b.Fatal(tag, err)
		}
	}
	b.StopTimer()
	if err := job.ranks[0].SendTag(b.Context(), 1, 0); err != nil {
		b.Fatal(err)
	}
}
