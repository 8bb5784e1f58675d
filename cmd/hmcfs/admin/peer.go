package admin

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/owner"
)

// Peer is the identity of the client process at the time when it connected.
type Peer struct {
	UID, GID, PID int
	// Groups are the supplementary groups.
	Groups []uint32
}

// peerOf asks the kernel for the process at the other end.
func peerOf(c *net.UnixConn) (Peer, error) {
	var cred *unix.Ucred
	var groups []uint32
	err := owner.Control(c, func(fd int) (err error) {
		if cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			groups, err = peerGroups(fd)
		}
		return err
	})
	if err != nil {
		return Peer{}, fmt.Errorf("peer: %w", err)
	}
	return Peer{UID: int(cred.Uid), GID: int(cred.Gid), PID: int(cred.Pid), Groups: groups}, nil
}
