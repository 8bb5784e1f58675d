package control

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// cutter relays one connection to a listener. It passes some bytes of the
// listener's answers, and then ends both sides.
func cutter(t *testing.T, to Address, answer int64, reset bool) Address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		c, err := l.Accept()
		if err != nil {
			return
		}
		there, err := net.Dial("tcp", to.Addr)
		if err != nil {
			t.Error(err)
			_ = c.Close()
			return
		}
		_, _ = io.CopyN(there, c, 1) // so that it is connected
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(there, c) // ends with either side
			_ = there.Close()
		}()
		_, _ = io.CopyN(c, there, answer)
		if tcp, ok := c.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_, _ = c.Close(), there.Close()
		<-gone
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-over
	})
	return Address{Network: TCP, Addr: l.Addr().String()}
}

// openDoor admits every peer.
type openDoor struct{}

func (openDoor) Admit(wire.Hello) (wire.Session, *wire.Refusal) { return 1, nil }
func (openDoor) Serve(c *Conn)                                  { _ = c.Close() }

// TestCutHandshake ends the connection after each number of bytes of a listener's
// answers: that is not a failed proof, so the connecting side may retry.
func TestCutHandshake(t *testing.T) {
	kit.Check(t)
	job := newAuthority(t)
	for name, o := range map[string][2]Options{
		"secret": {{Rank: 0, Secret: testSecret()}, {Rank: 1, Secret: testSecret()}},
		"TLS":    {{Rank: 0, TLS: job.config(t, 0)}, {Rank: 1, TLS: job.config(t, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, loopback(), o[0], openDoor{})
			through := false
			for n := int64(0); n < 8192; n += 1 + n/8 {
				for _, reset := range []bool{false, true} {
					through = isThrough(t, cutter(t, l.Address(), n, reset), o[1], n) || through
				}
			}
			if !through {
				t.Error("it is never through")
			}
		})
	}
}

// isThrough dials when n bytes of the answers get through.
func isThrough(t *testing.T, at Address, o Options, n int64) bool {
	t.Helper()
	c, err := Dial(within(t), at, o, hello(0))
	if err == nil {
		_ = c.Close()
		if n < 100 {
			t.Errorf("it is through after %d bytes", n)
		}
		return true
	}
	if !errors.Is(err, ErrSilent) || errors.Is(err, ErrAuth) {
		t.Errorf("cut after %d bytes: %v", n, err)
	}
	return false
}
