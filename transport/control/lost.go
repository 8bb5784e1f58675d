package control

import (
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how much later than the timeout the kernel gives a connection up:
// who knows better why it does not go on says so first.
const grace = 2 * time.Second

// keepAlive finds a peer whose machine is gone while nothing is sent.
func keepAlive(timeout time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable: true, Idle: max(time.Second, timeout/2), Interval: max(time.Second, timeout/6), Count: 3,
	}
}

// impatient makes the kernel give a connection up on which what was sent is
// not acknowledged: by itself it goes on for a quarter of an hour, without
// keep-alive. What a listener accepts has it from the listener.
func impatient(timeout time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((timeout + grace).Milliseconds()))
		})
		if err == nil {
			err = os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", failed)
		}
		return err
	}
}
