package filecollect

import (
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Report tells how a task went between the nodes, or on one.
type Report struct {
	Algorithm plan.Algorithm `json:"algorithm"`
	// Because says what the algorithm was chosen by: "model", "option", "one
	// node" or "one device".
	Because string `json:"because"`
	// Path is the way of the bytes between the nodes: "direct", "window",
	// "stream"; "local" on one node, "device" inside one device.
	Path string `json:"path"`
	// Calls counts the collectives that the nodes did, one for each segment;
	// Predicted and Measured are the sums of their times.
	Calls     uint64        `json:"calls"`
	Predicted time.Duration `json:"predicted"`
	Measured  time.Duration `json:"measured"`
	// Sent and Received are bytes over links.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Retries  int    `json:"retries"`
}

// OneNode is the report of a task whose files are all on one node.
func OneNode() Report { return Report{Algorithm: plan.Direct, Because: "one node", Path: "local"} }

// OneDevice is that of a task that a device did in its own memory.
func OneDevice() Report {
	return Report{Algorithm: plan.Direct, Because: "one device", Path: "device"}
}

// Recorder adds up the reports of a group.
type Recorder struct {
	mu sync.Mutex
	// +checklocks:mu
	sum Report
}

// Observe is collective.Options.Observe.
func (r *Recorder) Observe(c *collective.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.sum
	s.Algorithm, s.Because, s.Path = c.Algorithm, c.Because, c.Path
	s.Calls++
	s.Predicted += c.Predicted
	s.Measured += c.Measured
	s.Sent += c.Sent
	s.Received += c.Received
	s.Retries += c.Retries
}

// Report is the sum until now.
func (r *Recorder) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum
}

// Bandwidths are the bytes of the whole in a second, and how fast the busiest
// link would have been were each file a rank of its own, by the rules of
// nccl-tests.
func Bandwidths(t Task, took time.Duration) (algorithm, bus float64) {
	if took <= 0 {
		return 0, 0
	}
	n := float64(t.Ranks)
	whole := float64(t.Size)
	factor := 1.0
	switch t.Kind {
	case plan.AllReduce:
		factor = 2 * (n - 1) / n
	case plan.AllGather:
		whole *= n
		factor = (n - 1) / n
	case plan.ReduceScatter, plan.AllToAll:
		factor = (n - 1) / n
	default:
	}
	algorithm = whole / took.Seconds()
	return algorithm, algorithm * factor
}
