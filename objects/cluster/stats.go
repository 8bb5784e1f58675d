package cluster

import (
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// counters holds the counts that Stats returns. Any goroutine may change them.
type counters struct {
	questions, answers, failures      atomic.Uint64
	bytesIn, bytesOut                 atomic.Uint64
	invalidationsOut, invalidationsIn atomic.Uint64
}

// Stats returns a snapshot of the counters.
func (c *Cluster) Stats() members.Traffic {
	n := &c.count
	return members.Traffic{
		Questions:        n.questions.Load(),
		Answers:          n.answers.Load(),
		Failures:         n.failures.Load(),
		BytesIn:          n.bytesIn.Load(),
		BytesOut:         n.bytesOut.Load(),
		InvalidationsOut: n.invalidationsOut.Load(),
		InvalidationsIn:  n.invalidationsIn.Load(),
	}
}
