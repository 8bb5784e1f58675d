package collective

import (
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Report tells how a call went.
type Report struct {
	Task plan.Task `json:"task"`
	// Algorithm and Because say what was chosen, and by what: "model", "option",
	// "plan".
	Algorithm plan.Algorithm `json:"algorithm"`
	Because   string         `json:"because"`
	Predicted time.Duration  `json:"predicted"`
	Measured  time.Duration  `json:"measured"`
	// Sent and Received are bytes over links, Messages how many sends.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Messages uint64 `json:"messages"`
	Retries  int    `json:"retries"`
	// Path is the way of the bytes: "direct" is memory that all ranks have mapped,
	// "window" the group's own such memory, "passed" that for device memory which
	// the host does not see, "stream" the links, and "staged" the links, from or to
	// such memory of a device.
	Path string `json:"path"`
}

// Bandwidths are the bytes of the whole in a second, and how fast the busiest
// link was, by the rules of nccl-tests.
func (r *Report) Bandwidths() (algorithm, bus float64) {
	if r.Measured <= 0 {
		return 0, 0
	}
	n := float64(r.Task.Ranks)
	algorithm = float64(r.Task.Count*r.Task.Type.Size()) / r.Measured.Seconds()
	switch r.Task.Kind {
	case plan.AllReduce:
		return algorithm, algorithm * 2 * (n - 1) / n
	case plan.ReduceScatter, plan.AllGather, plan.AllToAll:
		return algorithm, algorithm * (n - 1) / n
	case plan.Broadcast, plan.Reduce, plan.Barrier:
	}
	return algorithm, algorithm
}

// note writes what went over links to the report.
func (r *Report) note(c counters, path string) {
	r.Sent, r.Received, r.Messages, r.Path = c.sent, c.received, c.messages, path
}

// counters count what went over links, but for staged and local.
type counters struct {
	sent, received, messages uint64
	// staged counts what was copied from and to devices, and local what steps did that
	// need no link.
	staged, local uint64
}

// moved is all bytes that went anywhere.
func (c *counters) moved() uint64 { return c.sent + c.received + c.staged + c.local }
