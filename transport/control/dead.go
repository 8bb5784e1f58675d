package control

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// probes is the number of times that the kernel asks a machine that is silent.
const probes = 3

// grace is the time behind the limit at which the kernel gives a connection up that
// confirms nothing: who knows better why it does not go on says so first.
const grace = 2 * time.Second

// keepAlive ends a connection with nothing to say whose peer's machine is gone:
// a third of the limit is silence, the rest are questions. The kernel counts in
// seconds.
func keepAlive(limit time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable: true, Count: probes,
		Idle:     max(limit/3, time.Second),
		Interval: max(limit*2/(3*probes), time.Second),
	}
}

// giveUp ends a data connection whose peer's machine does not confirm what was
// sent to it: for that the kernel asks no question, and goes on for a quarter
// of an hour. A control connection may be full for as long as the peer does
// not receive, which to the kernel is the same, and so may a stream; they end
// with the others.
func giveUp(c net.Conn, role wire.Role, limit time.Duration) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok || role == wire.RoleControl || role == wire.RoleStream {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((limit+grace)/time.Millisecond))
	}); cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("bound how long a connection waits for a dead machine: %w", err)
	}
	return nil
}
