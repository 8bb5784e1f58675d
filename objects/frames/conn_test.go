package frames_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// adopted connects a Conn.
func adopted(t *testing.T, limit time.Duration) (*net.UnixConn, *frames.Conn) {
	t.Helper()
	a, b := pair(t)
	c, err := frames.Adopt(b, nil, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return a, c
}

// TestConn reads what arrives while it polls, while a thread waits, and while none does.
func TestConn(t *testing.T) {
	kit.Check(t)
	a, c := adopted(t, time.Minute)
	readAll(t, a, c)
}

// outcome is that of a Read.
type outcome struct {
	n   int
	err error
}

// reading starts a Read. If it sleeps, it has left the wait to the runtime.
func reading(c *frames.Conn, p []byte, sleeps bool) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		n, err := c.Read(p)
		done <- outcome{n, err}
	}()
	if sleeps {
		<-time.After(20 * time.Millisecond)
	}
	return done
}

// TestConnIsInterrupted ends reads by interrupts, after which it continues, and by closing: those
// that have just begun, and those that sleep.
func TestConnIsInterrupted(t *testing.T) {
	kit.Check(t)
	for name, sleeps := range map[string]bool{"at once": false, "asleep": true} {
		t.Run(name, func(t *testing.T) {
			a, c := adopted(t, time.Minute)
			p := make([]byte, 8)
			for range 3 {
				done := reading(c, p, sleeps)
				c.Interrupt()
				if o := <-done; !errors.Is(o.err, os.ErrDeadlineExceeded) {
					t.Fatalf("interrupted: %+v", o)
				}
			}
			c.Interrupt() // the next read
			if _, err := c.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("interrupted before: %v", err)
			}
			continued(t, a, c, sleeps)
			closed(t, a, c, sleeps)
		})
	}
}

// continued sends something to a Read.
func continued(t *testing.T, a *net.UnixConn, c *frames.Conn, sleeps bool) {
	t.Helper()
	p := make([]byte, 8)
	done := reading(c, p, sleeps)
	if _, err := a.Write([]byte("again")); err != nil {
		t.Fatal(err)
	}
	o := <-done
	for errors.Is(o.err, os.ErrDeadlineExceeded) { // an interrupt may be seen twice
		o = <-reading(c, p, false)
	}
	if o.err != nil || string(p[:o.n]) != "again" {
		t.Errorf("continued: %+v, %q", o, p)
	}
}

// closed closes a connection that is read.
func closed(t *testing.T, a *net.UnixConn, c *frames.Conn, sleeps bool) {
	t.Helper()
	p := make([]byte, 8)
	done := reading(c, p, sleeps)
	_ = c.Close()
	if o := <-done; o.err == nil {
		t.Errorf("closed: %+v", o)
	}
	if _, err := c.Read(p); err == nil {
		t.Error("a closed connection was read")
	}
	if n, err := a.Read(p); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the peer: %d, %v", n, err)
	}
}

// TestConnWrites sends pieces that the buffers of the connection don't take at once, shuts a
// direction, and sends to a peer that reads nothing.
func TestConnWrites(t *testing.T) {
	kit.Check(t)
	a, c := adopted(t, time.Minute)
	want := kit.Bytes(9, 0, 3_000_000)
	sent := make(chan error, 1)
	go func() {
		err := errors.Join(c.Write(want[:1000]), c.Write(want[1000:1010], want[1010:2_000_000], want[2_000_000:]))
		c.Shut(unix.SHUT_WR)
		sent <- err
	}()
	got, err := io.ReadAll(a)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if err = <-sent; err != nil {
		t.Error(err)
	}
	if err = c.Write(want[:1]); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("written after the end: %v", err)
	}
	for _, pieces := range [][][]byte{{want}, {want[:10], want}} {
		_, stuck := adopted(t, 50*time.Millisecond)
		if err := stuck.Write(pieces[0], pieces[1:]...); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("%d pieces to a peer that does not read: %v", len(pieces), err)
		}
	}
}
