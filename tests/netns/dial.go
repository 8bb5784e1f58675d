package netns

import (
	"context"
	"net"
	"runtime"
)

// Dial connects from the space to an address, which must be an IP address with a port. The
// connection may be used in any namespace.
func (s *Space) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	type made struct {
		conn net.Conn
		err  error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := s.Enter(); err != nil {
			done <- made{nil, err}
			return
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		done <- made{conn, err}
	}()
	m := <-done
	return m.conn, m.err
}
