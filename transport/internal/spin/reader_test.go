package spin

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// pair is a reader and the other end of its connection.
func pair(t *testing.T) (*Reader, net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it has done what it was for
	a, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	r, err := New(a)
	if err != nil {
		t.Fatal(err)
	}
	r.Eager = true
	return r, b
}

// TestRead reads bytes that are available, bytes that arrive only after the
// reader has gone to sleep, and the end.
func TestRead(t *testing.T) {
	kit.Check(t)
	r, peer := pair(t)
	want := kit.Bytes(1, 0, 3000)
	if _, err := peer.Write(want[:1000]); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3000)
	if n, err := r.Read(got); n != 1000 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	read := make(chan error)
	go func() {
		_, err := io.ReadFull(r, got[1000:])
		read <- err
	}()
	for at := 1000; at < 3000; at += 500 {
		if _, err := peer.Write(want[at : at+500]); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if at := kit.FirstDiff(got, want); at >= 0 {
		t.Errorf("byte %d differs", at)
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	for _, eager := range []bool{true, false} {
		r.Eager = eager
		if n, err := r.Read(got); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the end, eager %v: %d, %v", eager, n, err)
		}
	}
}

// TestDeadline sets the deadline of a reader that spins, and of one that sleeps.
func TestDeadline(t *testing.T) {
	kit.Check(t)
	r, peer := pair(t)
	p := make([]byte, 1)
	for _, at := range []time.Time{time.Unix(1, 0), time.Now().Add(10 * time.Millisecond)} {
		if err := r.conn.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
		if n, err := r.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
	}
	if err := r.conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Write([]byte{7}); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(p); n != 1 || p[0] != 7 || err != nil {
		t.Errorf("afterwards: %d, %v, %v", n, p, err)
	}
}

// TestInVain uses a peer that never answers in time: after each read that spins
// in vain, more and more of the next ones sleep at once.
func TestInVain(t *testing.T) {
	kit.Check(t)
	r, _ := pair(t)
	p := make([]byte, 1)
	spun := 0
	for range 1000 {
		if err := r.conn.SetReadDeadline(time.Now().Add(10 * patience)); err != nil {
			t.Fatal(err)
		}
		if r.skip == 0 {
			spun++
		}
		if n, err := r.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if spun > 20 {
		t.Errorf("%d of 1000 reads have spun in vain", spun)
	}
	if _, err := New(struct{ net.Conn }{r.conn}); err != nil {
		t.Errorf("of what is no socket: %v", err)
	}
}
