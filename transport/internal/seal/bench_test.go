package seal

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// BenchmarkStream sends 1 MiB at a time one way over TCP on this machine,
// directly and in records, alternating.
func BenchmarkStream(b *testing.B) {
	for _, how := range []string{"plain", "sealed"} {
		b.Run(how, func(b *testing.B) {
			from, to := sockets(b)
			if how == "sealed" {
				from, to = sealed(b, from, to)
			}
			const size = 1 << 20
			data, got := kit.Bytes(1, 0, size), make([]byte, size)
			b.SetBytes(size)
			b.ResetTimer()
			begin := processorTime(b)
			done := make(chan error, 1)
			go func() {
				for range b.N {
					if _, err := io.ReadFull(to, got); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			for range b.N {
				if _, err := from.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(processorTime(b)-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkRequest requests 4 KiB with 32 bytes, one after another, over TCP on
// this machine, directly and in records.
func BenchmarkRequest(b *testing.B) {
	for _, how := range []string{"plain", "sealed"} {
		b.Run(how, func(b *testing.B) {
			from, to := sockets(b)
			if how == "sealed" {
				from, to = sealed(b, from, to)
			}
			const ask, answer = 32, 32 + 4<<10
			go serve(to, ask, answer)
			p := make([]byte, answer)
			begin := processorTime(b)
			times := make([]time.Duration, 0, b.N)
			for range b.N {
				start := time.Now()
				if _, err := from.Write(p[:ask]); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(from, p); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
			b.ReportMetric(float64(processorTime(b)-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// serve answers requests, of ask bytes each, until the connection ends.
func serve(conn io.ReadWriter, ask, answer int) {
	p := make([]byte, answer)
	for {
		if _, err := io.ReadFull(conn, p[:ask]); err != nil {
			return
		}
		if _, err := conn.Write(p); err != nil {
			return
		}
	}
}

// processorTime returns the processor time of this process, which other processes
// of the machine don't change much.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRecord makes and opens records in memory.
func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{32, 4 << 10, MaxRecord} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			key := NewKey([]byte("benchmark"), "records")
			out, err := newDirection(key)
			if err != nil {
				b.Fatal(err)
			}
			in, err := newDirection(key)
			if err != nil {
				b.Fatal(err)
			}
			data, record := kit.Bytes(1, 0, size), make([]byte, 0, size+Overhead)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if record, err = out.seal(record[:0], kindData, data); err != nil {
					b.Fatal(err)
				}
				if _, err = in.open(nil, record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// sockets is both ends of a TCP connection on this machine.
func sockets(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// sealed returns both ends of a connection after the handshake.
func sealed(t testing.TB, a, b net.Conn) (*Conn, *Conn) {
	t.Helper()
	one, two := shaken(t)
	left, err := one.Conn(a)
	if err != nil {
		t.Fatal(err)
	}
	right, err := two.Conn(b)
	if err != nil {
		t.Fatal(err)
	}
	left.Ahead()
	right.Ahead()
	t.Cleanup(func() { _, _ = left.Close(), right.Close() })
	return left, right
}

// shaken returns both sides of a complete handshake.
func shaken(t testing.TB) (one, two *Handshake) {
	t.Helper()
	key := NewKey(kit.Bytes(1, 0, 32), "test")
	one, err := NewHandshake(key, "p", true)
	if err != nil {
		t.Fatal(err)
	}
	if two, err = NewHandshake(key, "p", false); err != nil {
		t.Fatal(err)
	}
	say := func(from, to *Handshake, text string) {
		m, err := from.Write([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := to.Read(m); err != nil || string(got) != text {
			t.Fatal(string(got), err)
		}
	}
	say(one, two, "hello")
	say(two, one, "who is there")
	return one, two
}
