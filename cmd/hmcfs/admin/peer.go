package admin

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer is the identity of the client process at the time when it connected.
type Peer struct {
	UID, GID, PID int
	// Groups are the supplementary groups.
	Groups []uint32
}

// peerOf asks the kernel for the process at the other end.
func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("peer: %w", err)
	}
	var cred *unix.Ucred
	var groups []uint32
	var inner error
	err = raw.Control(func(fd uintptr) {
		if cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); inner == nil {
			groups, inner = peerGroups(int(fd))
		}
	})
	if err = errors.Join(err, inner); err != nil {
		return Peer{}, fmt.Errorf("peer: %w", err)
	}
	return Peer{UID: int(cred.Uid), GID: int(cred.Gid), PID: int(cred.Pid), Groups: groups}, nil
}
