package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The death of the daemon of a node that is held (members.Record) is a pause: for Options.Timeout
// from the end of the session, calls wait until another daemon continues the incarnation. If none
// has, or if the node has ended the session itself, they fail as with any other node.

// pauseRetry is the time between two attempts to reach a node that pauses.
const pauseRetry = 20 * time.Millisecond

// beginPause begins a pause after the end of a session with a cause, if the node may come back.
func (n *Node) beginPause(cause error) {
	if cause == nil || !n.Record().Held || n.Gone() {
		return
	}
	if _, silent := errors.AsType[*rpc.SilentError](cause); silent {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !errors.Is(cause, control.ErrClosedByPeer) && !errors.Is(n.ending, control.ErrClosedByPeer) {
		n.pauseEnd = time.Now().Add(n.c.opts.Timeout)
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

// endPause ends a pause: the node has left.
func (n *Node) endPause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pauseEnd = time.Time{}
}

// awaits waits a moment if the node pauses, and reports whether to try again after the error err.
func (n *Node) awaits(ctx context.Context, err error) bool {
	n.mu.Lock()
	left := time.Until(n.pauseEnd)
	n.mu.Unlock()
	if left <= 0 || ctx.Err() != nil || n.c.life.Err() != nil || n.Gone() || !errors.Is(err, ErrUnreachable) {
		return false
	}
	pause(ctx, min(left, pauseRetry))
	return true
}

// retryLocked returns the time for which a node that could not be reached is not tried again.
//
// +checklocks:n.mu
func (n *Node) retryLocked() time.Duration {
	if time.Now().Before(n.pauseEnd) {
		return pauseRetry
	}
	return retryAfter
}
