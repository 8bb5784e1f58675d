package fabric

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// errUnlinked is a link that Reform has not made yet.
var errUnlinked = errors.New("it has to be made anew")

// link is the link with a rank: one of ring, socket and relay.
type link struct {
	o      *over
	peer   plan.Rank
	ring   *ringLink
	socket *socket
	relay  *relay
	// bell wakes the peer of a ring who sleeps in poll.
	bell *doorbell
}

// open makes a connection with a rank.
func (o *over) open(ctx context.Context, world wire.Rank, name uint64) (net.Conn, error) {
	for {
		in, err := o.c.Origin(ctx, world)
		if err != nil {
			return nil, err
		}
		conn, err := o.c.Stream(ctx, in, name)
		// A listener with many in its door drops the oldest.
		if err == nil || ctx.Err() != nil || !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			return conn, err
		}
	}
}

// end ends our side. Nothing else uses the link meanwhile.
func (l *link) end() {
	if l == nil {
		return
	}
	if l.ring != nil {
		l.ring.end()
	}
	if l.socket != nil {
		l.socket.close()
	}
	if l.relay != nil {
		l.relay.close()
	}
	if l.bell != nil {
		l.bell.socket.close()
	}
	l.ring, l.socket, l.relay, l.bell = nil, nil, nil, nil
}

// TrySend sends what there is room for.
func (l *link) TrySend(head, body []byte) (int, error) { return l.send(head, body, false) }

// TryLend sends what there is room for, by its pages where there is a socket.
func (l *link) TryLend(head, body []byte) (int, error) { return l.send(head, body, true) }

func (l *link) send(head, body []byte, lend bool) (n int, err error) {
	if !l.o.gate.Enter() {
		return 0, &LinkError{l.peer, ErrClosed}
	}
	defer l.o.gate.Leave()
	if l.ring != nil {
		return l.ring.TrySend(head, body)
	}
	if gone := l.o.gone[l.peer].Load(); gone != nil {
		return 0, gone
	}
	switch {
	case l.socket != nil && lend:
		n, err = l.socket.lend(&l.o.pipes, head, body)
	case l.socket != nil:
		n, err = l.socket.send(head, body)
	case l.relay != nil:
		n, err = l.relay.send(head, body)
	default:
		err = errUnlinked
	}
	if err != nil {
		return 0, &LinkError{l.peer, err}
	}
	return n, nil
}

// TryReceive receives what has come.
func (l *link) TryReceive(p []byte) (n int, err error) {
	if !l.o.gate.Enter() {
		return 0, &LinkError{l.peer, ErrClosed}
	}
	defer l.o.gate.Leave()
	if l.ring != nil {
		return l.ring.TryReceive(p)
	}
	gone := l.o.gone[l.peer].Load()
	switch {
	case l.socket != nil:
		n, err = l.socket.receive(p)
	case l.relay != nil:
		n, err = l.relay.receive(p)
	default:
		err = errUnlinked
	}
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case err != nil:
		return 0, &LinkError{l.peer, err}
	case gone != nil && !errors.Is(gone.Err, errEnded):
		// What a rank has sent that has said goodbye is on its way, and its end.
		return 0, gone
	}
	return 0, nil
}

// ready says whether what somebody waits for is there. The room for a send over
// a socket is looked at only where asked.
func (l *link) ready(w Want, room bool) bool {
	if l.ring != nil {
		return l.ring.ready(w)
	}
	if gone := l.o.gone[l.peer].Load(); gone != nil && (w.Send || !errors.Is(gone.Err, errEnded)) {
		return true
	}
	switch {
	case l.socket != nil:
		return l.socket.ready(w, room)
	case l.relay != nil:
		return l.relay.ready(w)
	}
	return true
}

// signals are the counters of a fabric over a domain, which may be closed.
type signals over

// Set sets our own counter.
func (s *signals) Set(value uint64) {
	if s.gate.Enter() {
		s.node.Set(value)
		s.gate.Leave()
	}
}

// Meet sets our own counter, and looks at those of all others.
func (s *signals) Meet(value uint64) bool {
	if !s.gate.Enter() {
		return false
	}
	met := s.node.Meet(value)
	s.gate.Leave()
	return met
}

// Get is the counter of a rank.
func (s *signals) Get(of plan.Rank) uint64 {
	if s.seats[of] == nil || !s.gate.Enter() {
		return 0
	}
	defer s.gate.Leave()
	return s.node.Get(of)
}

// Await waits until the counter of a rank is at least value.
func (s *signals) Await(ctx context.Context, of plan.Rank, value uint64) error {
	switch {
	case s.seats[of] == nil:
		return &LinkError{of, ErrUnmapped}
	case !s.gate.Enter():
		return &LinkError{of, ErrClosed}
	}
	defer s.gate.Leave()
	return s.node.Await(ctx, of, value)
}
