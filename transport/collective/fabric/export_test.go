package fabric

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
)

// Cut breaks the connection of a link, or marks a ring as lost.
func Cut(f Fabric, peer plan.Rank) error {
	o, _ := f.(*over)
	l := o.links[peer]
	switch {
	case l.socket != nil:
		return unix.Shutdown(l.socket.fd, unix.SHUT_RDWR)
	case l.relay != nil:
		return l.relay.conn.Close()
	}
	err := l.ring.fail(errEnded)
	l.ring.end()
	if !errors.Is(err, ErrLink) {
		return err
	}
	return nil
}

// Unhook half-closes the doorbell with a rank of the same host, so that it can't wake that
// rank.
func Unhook(f Fabric, peer plan.Rank) error {
	o, _ := f.(*over)
	return unix.Shutdown(o.links[peer].bell.socket.fd, unix.SHUT_WR)
}

// Hear passes the goodbye packet of a rank to a fabric.
func Hear(f Fabric, from plan.Rank) {
	o, _ := f.(*over)
	o.series.mu.Lock()
	p := o.series.peers[from]
	o.series.mu.Unlock()
	o.packet(comm.Origin{Rank: o.worlds[from]}, &packet{kind: kindBye, from: p.nonce, to: o.nonce, name: o.name})
}
