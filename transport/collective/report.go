package collective

import (
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Report describes the execution of a call.
type Report struct {
	Task plan.Task `json:"task"`
	// Algorithm is the one used, and Because the reason: "model", "option" or "plan".
	Algorithm plan.Algorithm `json:"algorithm"`
	Because   string         `json:"because"`
	Predicted time.Duration  `json:"predicted"`
	Measured  time.Duration  `json:"measured"`
	// Sent and Received count bytes over links, Messages the sends.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Messages uint64 `json:"messages"`
	Retries  int    `json:"retries"`
	// Path is the path of the bytes: "direct" is memory that all ranks have mapped,
	// "window" the group's own mapped memory, "passed" the same for device memory that the
	// host can't access, "stream" the links, and "staged" the links, from or to such device
	// memory.
	Path string `json:"path"`
}

// Bandwidths returns the algorithm and bus bandwidths as defined by nccl-tests, in bytes
// per second: the size of the whole divided by the time, and the speed of the busiest link.
func (r *Report) Bandwidths() (algorithm, bus float64) {
	if r.Measured <= 0 {
		return 0, 0
	}
	algorithm = float64(r.Task.Count*r.Task.Type.Size()) / r.Measured.Seconds()
	return algorithm, algorithm * r.Task.Kind.BusFactor(r.Task.Ranks)
}

// note records the traffic over links in the report.
func (r *Report) note(c counters, path string) {
	r.Sent, r.Received, r.Messages, r.Path = c.sent, c.received, c.messages, path
}

// counters count traffic over links, except for staged and local.
type counters struct {
	sent, received, messages uint64
	// staged counts the bytes copied from and to devices, and local those of steps that
	// need no link.
	staged, local uint64
}

func (c *counters) moved() uint64 { return c.sent + c.received + c.staged + c.local }
