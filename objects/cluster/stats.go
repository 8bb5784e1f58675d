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

// stats returns a snapshot.
func (c *counters) stats() members.Traffic {
	return members.Traffic{
		Questions:        c.questions.Load(),
		Answers:          c.answers.Load(),
		Failures:         c.failures.Load(),
		BytesIn:          c.bytesIn.Load(),
		BytesOut:         c.bytesOut.Load(),
		InvalidationsOut: c.invalidationsOut.Load(),
		InvalidationsIn:  c.invalidationsIn.Load(),
	}
}
