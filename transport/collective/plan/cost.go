package plan

import "time"

// Link is what a message between two ranks costs: Latency, and its bytes
// divided by Bandwidth, in bytes per second.
type Link struct {
	Latency   time.Duration `json:"latency"`
	Bandwidth float64       `json:"bandwidth"`
}

// Costs is what was measured of a group. Every rank has to choose by the same.
type Costs struct {
	// Inside is the links between ranks of one node, Between the others.
	Inside  Link `json:"inside"`
	Between Link `json:"between"`
	// Combine is how many bytes of results one rank combines in a second, and
	// Memory how many it copies.
	Combine float64 `json:"combine"`
	Memory  float64 `json:"memory"`
}

// Estimate is how long an algorithm takes.
type Estimate struct {
	Algorithm Algorithm     `json:"algorithm"`
	Time      time.Duration `json:"time"`
}

// Estimates returns what every algorithm that can do the task would take, the
// fastest first.
func Estimates(t Task, s Shape, c Costs) ([]Estimate, error) { panic("plan: not written yet") }
