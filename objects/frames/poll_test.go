package frames_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// pair connects two Unix sockets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/socket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: l.Addr().String(), Net: "unix"}); err == nil {
		b, err = l.AcceptUnix()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// TestPoller reads what arrives while it polls, what arrives while it sleeps, and the end; with
// polling, and where no more readers may poll.
func TestPoller(t *testing.T) {
	kit.Check(t)
	for name, all := range map[string]*frames.Pollers{"polls": nil, "sleeps": {}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			in, err := frames.NewPoller(b, all)
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, a, in)
		})
	}
}

// readAll sends bytes through a connection, some of them after pauses, and reads them, and the end.
func readAll(t *testing.T, a *net.UnixConn, in io.Reader) {
	t.Helper()
	want := kit.Bytes(7, 0, 300_000)
	sent := make(chan error, 1)
	go func() {
		var failed error
		for off, n := 0, 1; off < len(want) && failed == nil; off, n = off+n, min(3*n, len(want)-off-n) {
			_, failed = a.Write(want[off : off+n])
			if off%2 == 0 {
				<-time.After(5 * time.Millisecond) // longer than a thread waits
			}
		}
		sent <- errors.Join(failed, a.CloseWrite())
	}()
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if err = <-sent; err != nil {
		t.Error(err)
	}
	if n, over := in.Read(make([]byte, 1)); n != 0 || !errors.Is(over, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, over)
	}
}

// TestPollerIsInterrupted ends reads by a deadline, after which it continues, and by closing.
func TestPollerIsInterrupted(t *testing.T) {
	kit.Check(t)
	a, b := pair(t)
	in, err := frames.NewPoller(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		n   int
		err error
	}
	read := func(p []byte) <-chan outcome {
		done := make(chan outcome, 1)
		go func() {
			n, failed := in.Read(p)
			done <- outcome{n, failed}
		}()
		return done
	}
	p := make([]byte, 8)
	done := read(p)
	if err = b.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if o := <-done; !errors.Is(o.err, os.ErrDeadlineExceeded) {
		t.Errorf("interrupted: %+v", o)
	}
	if err = b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	done = read(p)
	if _, err = a.Write([]byte("again")); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.err != nil || string(p[:o.n]) != "again" {
		t.Errorf("continued: %+v, %q", o, p)
	}
	done = read(p)
	_ = b.Close()
	if o := <-done; !errors.Is(o.err, net.ErrClosed) {
		t.Errorf("closed: %+v", o)
	}
}
