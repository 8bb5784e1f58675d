package transport

import "github.com/hmcfs/hmcfs/devices"

// Stats is a snapshot of an engine's counters. They only grow, apart from the
// two gauges of pinned memory.
type Stats struct {
	// Paths has one row for each path and device that was used, ordered by
	// path, then device.
	Paths []PathStats `json:"paths"`
	// PinnedInUse is the bytes of slots that somebody holds.
	PinnedInUse devices.Size `json:"pinned_in_use"`
	// PinnedTotal is the bytes of all slots, with those kept for reuse.
	PinnedTotal devices.Size `json:"pinned_total"`
}

// PathStats counts the copies of one path for one device.
type PathStats struct {
	Path   Path         `json:"path"`
	Device devices.Name `json:"device"`
	// Operations is how many copies moved every byte.
	Operations uint64 `json:"operations"`
	// Bytes is how many bytes those moved.
	Bytes uint64 `json:"bytes"`
	// Errors is how many copies failed, cancelled ones included.
	Errors uint64 `json:"errors"`
	// Seconds is the time that the Operations took together.
	Seconds float64 `json:"seconds"`
	// Latency is the histogram of the Operations' times.
	Latency []Bucket `json:"latency"`
}

// Bucket counts the operations that took at most LE seconds, those of the
// buckets before it included, as Prometheus does. What took longer than the
// last bucket is in Operations only.
type Bucket struct {
	LE    float64 `json:"le"`
	Count uint64  `json:"count"`
}
