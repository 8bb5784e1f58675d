package filecollect

import (
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Report describes how a task was carried out between the nodes, or on one.
type Report struct {
	Algorithm plan.Algorithm `json:"algorithm"`
	// Because is the reason for the choice of the algorithm: "model", "option", "one node" or
	// "one device".
	Because string `json:"because"`
	// Path is the route of the bytes between the nodes: "direct", "window", "stream"; "local"
	// on one node, "device" inside one device.
	Path string `json:"path"`
	// Calls is the number of collectives that the nodes ran, one for each segment; Predicted
	// and Measured are the sums of their times.
	Calls     uint64        `json:"calls"`
	Predicted time.Duration `json:"predicted"`
	Measured  time.Duration `json:"measured"`
	// Sent and Received are the bytes sent and received over links.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Retries  int    `json:"retries"`
}

// OneNode returns the report of a task whose files are all on one node.
func OneNode() Report { return Report{Algorithm: plan.Direct, Because: "one node", Path: "local"} }

// OneDevice returns the report of a task that a device ran in its own memory.
func OneDevice() Report {
	return Report{Algorithm: plan.Direct, Because: "one device", Path: "device"}
}

// Recorder adds up the reports of a group.
type Recorder struct {
	mu sync.Mutex
	// +checklocks:mu
	sum Report
}

// Observe is a function for collective.Options.Observe.
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

// Report returns the sum so far.
func (r *Recorder) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum
}

// Bandwidths returns the total bytes per second, and the bandwidth of the busiest link if each
// file were a rank of its own, as defined by nccl-tests.
func Bandwidths(t Task, took time.Duration) (algorithm, bus float64) {
	if took <= 0 {
		return 0, 0
	}
	whole := float64(t.Size)
	if t.Kind == plan.AllGather {
		whole *= float64(t.Ranks)
	}
	algorithm = whole / took.Seconds()
	return algorithm, algorithm * t.Kind.BusFactor(t.Ranks)
}
