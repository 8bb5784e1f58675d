package control

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// probes is the number of keepalive probes that the kernel sends to a silent
// machine.
const probes = 3

// grace is the time after the limit at which the kernel gives up a connection
// without acknowledgements: a component that knows the reason can report it
// first.
const grace = 2 * time.Second

// keepAlive returns settings that end an idle connection whose peer's machine is
// dead: a third of the limit is silence, the rest is for probes. The kernel
// counts in seconds.
func keepAlive(limit time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable: true, Count: probes,
		Idle:     max(limit/3, time.Second),
		Interval: max(limit*2/(3*probes), time.Second),
	}
}

// giveUp ends a data connection whose peer's machine does not acknowledge what
// was sent to it: in that case the kernel sends no probes, and retransmits for a
// quarter of an hour. A control connection, or a stream, may be full for as long
// as the peer does not receive, which looks the same to the kernel; these end
// together with the others.
func giveUp(c net.Conn, role wire.Role, limit time.Duration) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok || role == wire.RoleControl || role == wire.RoleStream {
		return nil
	}
	err := descriptor.Use(tcp, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((limit+grace)/time.Millisecond))
	})
	if err != nil {
		return fmt.Errorf("set how long a connection waits for an unresponsive machine: %w", err)
	}
	return nil
}
