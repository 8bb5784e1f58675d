package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The death of the daemon of a node that is held (members.Record) is a pause: for Options.Timeout,
// calls wait until another daemon continues the incarnation. If none has, or if the node has ended the
// session itself, they fail as with any other node.

// pauseRetry is the time between two attempts to reach a node that pauses.
const pauseRetry = 20 * time.Millisecond

// outOfReach is the time since a node is out of reach.
type outOfReach struct {
	// pauseEnd is the end of its pause; zero while it is in reach, or nobody has tried.
	pauseEnd time.Time
	// left is true if the node has ended the session itself, or does not answer, so there is no pause.
	left bool
}

// beginPause begins a pause after the end of a session with a cause, if the node may come back.
func (n *Node) beginPause(cause error) {
	if cause == nil || !n.Record().Held || n.Gone() {
		return
	}
	_, silent := errors.AsType[*rpc.SilentError](cause)
	n.mu.Lock()
	defer n.mu.Unlock()
	if silent || errors.Is(cause, control.ErrClosedByPeer) || errors.Is(n.ending, control.ErrClosedByPeer) {
		n.reach.left = true
	} else {
		n.reach.pauseEnd = time.Now().Add(n.c.opts.Timeout)
	}
}

// pauses reports whether a node has not ended its last session itself.
func (c *Cluster) pauses(rank wire.Rank) bool {
	n := c.byRank(rank)
	if n == nil || n.Gone() {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return !errors.Is(n.ending, control.ErrClosedByPeer)
}

// endPause ends a pause: the node is back, or it has left.
func (n *Node) endPause(left bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reach = outOfReach{left: left}
}

// awaits waits a moment if the node pauses, and reports whether to try again after the error err. Otherwise it returns that error
// or, if the caller gave up while the node paused, the context's: nothing is known of the node then.
func (n *Node) awaits(ctx context.Context, err error) (again bool, failure error) {
	if !n.Record().Held || n.c.life.Err() != nil || n.Gone() || !errors.Is(err, ErrUnreachable) {
		return false, err
	}
	n.mu.Lock()
	if n.reach == (outOfReach{}) {
		n.reach.pauseEnd = time.Now().Add(n.c.opts.Timeout)
	}
	left, now := time.Until(n.reach.pauseEnd), n.reach.left
	n.mu.Unlock()
	switch {
	case left <= 0 || now:
		return false, err
	case errors.Is(ctx.Err(), context.Canceled):
		return false, fmt.Errorf("wait for node %s: %w", n.name, ctx.Err())
	case ctx.Err() != nil:
		return false, err
	}
	pause(ctx, min(left, pauseRetry))
	return true, nil
}

// retryLocked returns the time for which a node that could not be reached is not tried again.
//
// +checklocks:n.mu
func (n *Node) retryLocked() time.Duration {
	if n.Record().Held && !n.reach.left && (n.reach.pauseEnd.IsZero() || time.Now().Before(n.reach.pauseEnd)) {
		return pauseRetry
	}
	return retryAfter
}
