package fabric

import (
	"context"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// ringLink is the link with a rank of the same host: a ring in each direction.
type ringLink struct {
	node *node
	peer plan.Rank
	out  outlet
	in   inlet
	// lost is the reason why the link has ended on this side; nil while it has not.
	lost atomic.Pointer[LinkError]
}

// TrySend puts into the ring as many bytes as fit.
func (l *ringLink) TrySend(head, body []byte) (int, error) {
	if err := l.ended(); err != nil {
		return 0, err
	}
	n, err := l.out.send(head, body)
	if err != nil {
		return 0, l.fail(err)
	}
	if n > 0 {
		l.node.wake(l.peer)
	}
	return n, nil
}

// TrySendZeroCopy copies, as a ring can't avoid it.
func (l *ringLink) TrySendZeroCopy(head, body []byte) (int, error) { return l.TrySend(head, body) }

// TryReceive takes the available bytes out of the ring.
func (l *ringLink) TryReceive(p []byte) (int, error) {
	// Read these first: bytes that came before the end are then seen below.
	lost, ended := l.ended(), l.in.flow.ended.Load() != 0
	n, err := l.in.receive(p)
	switch {
	case err != nil:
		return 0, l.fail(err)
	case n > 0:
		l.node.wake(l.peer)
		return n, nil
	case len(p) == 0:
		return 0, nil
	case lost != nil:
		return 0, lost
	case ended:
		return 0, l.fail(errEnded)
	}
	return 0, nil
}

// ended returns the reason why the link has ended, or nil.
func (l *ringLink) ended() error {
	if e := l.lost.Load(); e != nil {
		return e
	}
	if e := l.node.gone[l.peer].Load(); e != nil {
		return e
	}
	return nil
}

func (l *ringLink) fail(cause error) error {
	l.lost.CompareAndSwap(nil, &LinkError{l.peer, cause})
	return l.lost.Load()
}

// end tells the peer that no more bytes follow.
func (l *ringLink) end() {
	l.out.flow.ended.Store(1)
	l.node.wake(l.peer)
}

// ready reports whether the link can make the progress that w asks for.
func (l *ringLink) ready(w Want) bool {
	if l.ended() != nil || w.Receive && l.in.flow.ended.Load() != 0 {
		return true
	}
	if w.Receive {
		if n, err := l.in.filled(); n > 0 || err != nil {
			return true
		}
	}
	if w.Send {
		if n, err := l.out.room(); n > 0 || err != nil {
			return true
		}
	}
	return false
}

// park waits until one of the rings can make progress.
func (n *node) park(ctx context.Context, links []*ringLink, want []Want) error {
	for s := n.spinner(); s.again(); {
		if ready(links, want) {
			return nil
		}
	}
	mine := n.states[n.me]
	before := mine.rung.Load()
	mine.asleep.Store(asleepAtBell)
	defer mine.asleep.Store(0)
	if n.stopped.Swap(false) || ready(links, want) {
		return nil
	}
	return n.bells.sleep(ctx, before)
}

func ready(links []*ringLink, want []Want) bool {
	for _, w := range want {
		if links[w.Peer].ready(w) {
			return true
		}
	}
	return false
}
