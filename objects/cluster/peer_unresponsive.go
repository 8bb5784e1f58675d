package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// longestProbe is the longest pause between two attempts to reach a node that does not answer
// while there are no requests for it.
const longestProbe = 30 * time.Second

// outage is a period in which a node does not answer, so that detecting this takes long:
// requests fail at once, and attempts to reach the node are made in the background. It ends
// with an attempt that succeeds or is refused, or when the node itself says hello.
type outage struct {
	since time.Time
	// pause is the time before the next attempt, unless a request triggers one earlier.
	pause time.Duration
	timer *time.Timer
}

// suspend starts an outage because a session has ended without answers from the node.
func (n *Node) suspend(from comm.Origin, silent *rpc.SilentError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.session.Load(); s != nil && s.origin != from {
		return // there is a newer session
	}
	n.lapseLocked(silent.Since, nil)
}

// lapseLocked starts an outage or prolongs it, after a failed attempt (cause is its error) or
// after the end of a session (cause is nil).
//
// +checklocks:n.mu
func (n *Node) lapseLocked(since time.Time, cause error) {
	if n.outage == nil {
		n.outage = &outage{since: since}
		n.c.log.Warn("a node does not answer", zap.String("node", string(n.name)), zap.Time("since", since), zap.Error(cause))
	}
	o := n.outage
	text := fmt.Sprintf("no answer since %s", o.since.UTC().Format(time.RFC3339))
	n.problem = fmt.Errorf("node %s: %w: %s", n.name, ErrUnreachable, text)
	if cause != nil {
		n.problem = fmt.Errorf("%w: %s", attempted{cause}, text)
	}
	o.stop()
	o.pause = min(max(2*o.pause, retryAfter), longestProbe)
	o.timer = time.AfterFunc(o.pause, n.probe)
}

// attempted wraps the reason why an attempt failed, for requests that do not wait for another
// one. It is no context.DeadlineExceeded, since the deadline was the attempt's, not the
// request's.
type attempted struct{ cause error }

// Error returns the text of the cause.
func (a attempted) Error() string { return a.cause.Error() }

// Is matches what the cause matches, except context.DeadlineExceeded.
func (a attempted) Is(target error) bool {
	return target != context.DeadlineExceeded && errors.Is(a.cause, target)
}

// probe tries again to reach a node that does not answer.
func (n *Node) probe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.outage != nil && n.trying == nil && !n.Gone() {
		_, _ = n.beginLocked() // fails only when the cluster closes, and then there are no more requests
	}
}

// stop stops the timer of the next attempt.
func (o *outage) stop() {
	if o != nil && o.timer != nil {
		o.timer.Stop()
	}
}

// resumeLocked ends an outage.
//
// +checklocks:n.mu
func (n *Node) resumeLocked() {
	n.outage.stop()
	n.outage = nil
}
