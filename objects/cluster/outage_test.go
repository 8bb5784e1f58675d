package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/tests/kit"
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
