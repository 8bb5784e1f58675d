package fabric

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// errUnlinked reports a link that Reform has not made yet.
var errUnlinked = errors.New("the link must be re-established")

// link is the link with a rank: exactly one of ring, socket and relay is set.
type link struct {
	o      *over
	peer   plan.Rank
	ring   *ringLink
	socket *socket
	relay  *relay
	// bell wakes the peer of a ring that sleeps in poll.
	bell *doorbell
}

func (o *over) open(ctx context.Context, world wire.Rank, name uint64) (net.Conn, error) {
	for {
		in, err := o.c.Origin(ctx, world)
		if err != nil {
			return nil, err
		}
		conn, err := o.c.Stream(ctx, in, name)
		// A listener whose backlog is full drops the oldest connection: try again.
		if err == nil || ctx.Err() != nil || !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			return conn, err
		}
	}
}

// end closes our side. The link must not be in use.
func (l *link) end() {
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

// TrySend sends as much as there is room for.
func (l *link) TrySend(head, body []byte) (int, error) { return l.send(head, body, false) }

// TrySendZeroCopy sends as much as there is room for, over a socket without copying.
func (l *link) TrySendZeroCopy(head, body []byte) (int, error) { return l.send(head, body, true) }

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
		n, err = l.socket.sendZeroCopy(&l.o.pipes, head, body)
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

// TryReceive receives the bytes that have arrived.
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
		// After an orderly close, the peer's remaining bytes and the end of the stream
		// follow.
		return 0, gone
	}
	return 0, nil
}

// ready reports whether the link can make the progress that w asks for. The room for a send
// over a socket is checked only if room is set.
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

// Arrive sets our own counter, and checks those of all other ranks.
func (s *signals) Arrive(value uint64) bool {
	if !s.gate.Enter() {
		return false
	}
	met := s.node.Arrive(value)
	s.gate.Leave()
	return met
}

// Get returns the counter of a rank.
func (s *signals) Get(of plan.Rank) uint64 {
	if s.states[of] == nil || !s.gate.Enter() {
		return 0
	}
	defer s.gate.Leave()
	return s.node.Get(of)
}

// Await waits until the counter of a rank is at least value.
func (s *signals) Await(ctx context.Context, of plan.Rank, value uint64) error {
	switch {
	case s.states[of] == nil:
		return &LinkError{of, ErrUnmapped}
	case !s.gate.Enter():
		return &LinkError{of, ErrClosed}
	}
	defer s.gate.Leave()
	return s.node.Await(ctx, of, value)
}
