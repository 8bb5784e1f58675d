package admin

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID asks the kernel whose process is at the other end.
func peerUID(c net.Conn) (int, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("peer of a %T: not a Unix socket", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("peer: %w", err)
	}
	var cred *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return 0, fmt.Errorf("peer: %w", err)
	}
	return int(cred.Uid), nil
}
