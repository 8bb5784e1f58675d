package control

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// sourceBits is the length of the prefix that identifies an IPv6 source: hosts
// choose the rest of their address.
const sourceBits = 64

// sourceOf returns the source of a connection, by which connections are identified
// that one party may have made: an IPv4 address, or the network of an IPv6 one. The
// zero value stands for this machine's processes on a Unix socket.
func sourceOf(c net.Conn) netip.Prefix {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := at.AddrPort().Addr().Unmap().WithZone("")
	// It fails for an invalid address.
	p, _ := ip.Prefix(min(ip.BitLen(), sourceBits))
	return p
}

// group is a set of candidates with the same properties.
type group struct {
	source netip.Prefix
	// heard is set if they have sent something.
	heard bool
}

// candidate is a connection that has yet to authenticate.
type candidate struct {
	group

	conn net.Conn
	// dropped is set if it was closed to make room.
	dropped bool
}

// candidates holds the connections that have yet to authenticate, at most `most`
// of them. Its owner locks it.
type candidates struct {
	most int
	// all has the oldest first.
	all   []*candidate
	count map[group]int
}

// add adds a connection, and returns one that must make room, if any: the caller
// closes it.
func (q *candidates) add(c net.Conn) (one *candidate, surplus net.Conn) {
	if q.count == nil {
		q.count = map[group]int{}
	}
	one = &candidate{group: group{source: sourceOf(c)}, conn: c}
	q.all = append(q.all, one)
	q.count[one.group]++
	if len(q.all) > q.most {
		surplus = q.drop()
	}
	return one, surplus
}

// reserve is the share of the places, as 1/reserve, that candidates already heard
// can't occupy: a first message can be a recorded one, or with TLS be made by
// any stranger, and a new candidate is silent at first.
const reserve = 4

// drop removes one candidate. It chooses a silent one, if there are any and those
// heard leave the silent ones their share, and otherwise one that was heard: the
// oldest of the source that has most of them.
func (q *candidates) drop() net.Conn {
	most, all := map[bool]int{}, map[bool]int{}
	for g, n := range q.count {
		most[g.heard] = max(most[g.heard], n)
		all[g.heard] += n
	}
	heard := all[false] == 0 || all[true] > q.most-q.most/reserve
	for _, c := range q.all {
		if c.heard == heard && q.count[c.group] == most[heard] {
			q.remove(c)
			c.dropped = true
			return c.conn
		}
	}
	return nil
}

// hear records that a candidate has sent something.
func (q *candidates) hear(c *candidate) {
	if c.dropped {
		return
	}
	q.forget(c.group)
	c.heard = true
	q.count[c.group]++
}

// remove ends a candidate, and reports whether it was dropped before.
func (q *candidates) remove(c *candidate) (dropped bool) {
	if !c.dropped {
		q.all = slices.DeleteFunc(q.all, func(other *candidate) bool { return other == c })
		q.forget(c.group)
	}
	return c.dropped
}

func (q *candidates) forget(g group) {
	if q.count[g]--; q.count[g] == 0 {
		delete(q.count, g)
	}
}

// awaitByte waits until the peer has sent something, and leaves it unread. It
// returns at once for a connection that is not a socket.
func awaitByte(c net.Conn) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var failure error
	err = raw.Read(func(fd uintptr) bool {
		var p [1]byte
		n, _, failure = unix.Recvfrom(int(fd), p[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return failure != unix.EAGAIN && failure != unix.EINTR
	})
	switch {
	case err != nil:
		return err
	case failure != nil:
		return failure
	case n == 0:
		return io.EOF
	}
	return nil
}
