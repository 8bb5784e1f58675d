package tcp

import (
	"fmt"
	"io"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// BenchmarkTransfer is puts and gets of one channel over loopback, beside the
// same bytes as a plain stream that is acknowledged with one byte: what the
// kernel makes possible.
func BenchmarkTransfer(b *testing.B) {
	for _, n := range []devices.Size{8, 4 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("stream/%v", n), func(b *testing.B) { benchStream(b, int(n)) })
		b.Run(fmt.Sprintf("put/%v", n), func(b *testing.B) { benchTransfer(b, wire.KindPut, n) })
		b.Run(fmt.Sprintf("get/%v", n), func(b *testing.B) { benchTransfer(b, wire.KindGet, n) })
	}
}

func benchTransfer(b *testing.B, kind wire.Kind, n devices.Size) {
	b.Helper()
	s, peer := sides(b, "tcp", Options{})
	local, remote := s.host(b, n), peer.host(b, n)
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

func benchStream(b *testing.B, n int) {
	b.Helper()
	from, to := sockets(b, "tcp")
	defer func() { _, _ = from.Close(), to.Close() }()
	src, dst := make([]byte, n), make([]byte, n)
	go func() {
		for {
			if _, err := io.ReadFull(to, dst); err != nil {
				return
			}
			if _, err := to.Write(dst[:1]); err != nil {
				return
			}
		}
	}()
	b.SetBytes(int64(n))
	var ack [1]byte
	for b.Loop() {
		if _, err := from.Write(src); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(from, ack[:]); err != nil {
			b.Fatal(err)
		}
	}
}
