package tcp

import (
	"fmt"
	"io"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// BenchmarkTransfer measures puts and gets of one channel over loopback, and for
// comparison the same bytes as a plain stream that is acknowledged with one byte,
// and a stream that sends and receives the same 128 KiB repeatedly, as network
// benchmarks do: it never leaves the processor's cache.
func BenchmarkTransfer(b *testing.B) {
	for _, n := range []devices.Size{8, 4 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("stream/%v", n), func(b *testing.B) { benchStream(b, int(n), int(n)) })
		b.Run(fmt.Sprintf("blocks/%v", n), func(b *testing.B) { benchStream(b, int(n), min(int(n), 128<<10)) })
		b.Run(fmt.Sprintf("put/%v", n), func(b *testing.B) { benchTransfer(b, wire.KindPut, n) })
		b.Run(fmt.Sprintf("get/%v", n), func(b *testing.B) { benchTransfer(b, wire.KindGet, n) })
	}
}

func benchTransfer(b *testing.B, kind wire.Kind, n devices.Size) {
	b.Helper()
	ca, cb := sockets(b, "tcp")
	s, peer := newSideOf(b, ca, Options{}, control.DefaultChunk), newSideOf(b, cb, Options{}, control.DefaultChunk)
	local, remote := s.host(b, n), peer.host(b, n)
	transporttest.Fill(b, local, 1)
	transporttest.Fill(b, remote, 2)
	d := peer.grant(b, remote, both)
	var tr Transfer
	w := newWaiter()
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		if err := tr.Start(Plan{Kind: kind, Local: local, Key: d.Key, Size: n}, w); err != nil {
			b.Fatal(err)
		}
		s.channel.Post(&tr)
		if err := <-w; err != nil {
			b.Fatal(err)
		}
	}
}

func benchStream(b *testing.B, n, block int) {
	b.Helper()
	from, to := sockets(b, "tcp")
	defer func() { _, _ = from.Close(), to.Close() }()
	src, dst := kit.Bytes(1, 0, block), kit.Bytes(2, 0, block)
	go func() {
		for {
			for range n / block {
				if _, err := io.ReadFull(to, dst); err != nil {
					return
				}
			}
			if _, err := to.Write(dst[:1]); err != nil {
				return
			}
		}
	}()
	b.SetBytes(int64(n))
	var ack [1]byte
	for b.Loop() {
		for range n / block {
			if _, err := from.Write(src); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := io.ReadFull(from, ack[:]); err != nil {
			b.Fatal(err)
		}
	}
}
