package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
)

// TestOutageIsNotLate: the error of an outage is that the node can't be reached, even if the
// attempt itself ran out of time, since the next request did not.
func TestOutageIsNotLate(t *testing.T) {
	kit.Check(t)
	n := &Node{name: "b", c: &Cluster{log: zap.NewNop()}}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cause := range []error{ErrUnreachable, ErrVersion} {
		n.lapseLocked(time.Now(), fmt.Errorf("connect: %w: %w", cause, context.DeadlineExceeded))
		n.outage.stop()
		if !errors.Is(n.problem, cause) || errors.Is(n.problem, context.DeadlineExceeded) {
			t.Errorf("an attempt that ended with %v and ran out of time is told as %v", cause, n.problem)
		}
	}
}

// TestCancelledWhileANodePauses: a call whose caller gives up while the node pauses says so, and nothing of the node. A program
// whose call was interrupted by a signal repeats it, and takes any other error for the loss of the node.
func TestCancelledWhileANodePauses(t *testing.T) {
	kit.Check(t)
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	late, over := context.WithDeadline(t.Context(), time.Now())
	defer over()
	for name, c := range map[string]struct {
		held, left bool
		late       bool
		want, not  error
	}{
		"interrupted":                          {true, false, false, context.Canceled, ErrUnreachable},
		"late":                                 {true, false, true, ErrUnreachable, context.Canceled},
		"interrupted, by a node that has left": {true, true, false, ErrUnreachable, context.Canceled},
		"interrupted, by one without a holder": {false, false, false, ErrUnreachable, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(&Cluster{log: zap.NewNop(), life: t.Context(), opts: Options{Timeout: time.Minute}}, members.Record{Name: "b", Held: c.held})
			n.mu.Lock()
			n.problem, n.retryAt, n.reach.left = fmt.Errorf("connect: %w", ErrUnreachable), time.Now().Add(time.Hour), c.left
			n.mu.Unlock()
			ctx := interrupted
			if c.late {
				ctx = late
			}
			_, err := n.live(ctx)
			if !errors.Is(err, c.want) || errors.Is(err, c.not) {
				t.Errorf("a call without a session: %v", err)
			}
			broken := fmt.Errorf("reset: %w", control.ErrDisconnected)
			again, err := n.repeat(ctx, &repetition{}, &session{}, broken, false, false)
			if want := c.want; again || errors.Is(want, context.Canceled) != errors.Is(err, context.Canceled) {
				t.Errorf("a request whose session broke: %v, %v", again, err)
			}
		})
	}
}
