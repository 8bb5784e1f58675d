package transport

import "github.com/hmcfs/hmcfs/devices"

// Stats is a snapshot of an engine's counters. They only grow, apart from the
// gauges of pinned and registered memory.
type Stats struct {
	// Paths has one row for each path and device that was used, ordered by
	// path, then device.
	Paths []PathStats `json:"paths"`
	// PinnedInUse is the size, in bytes, of the slots that are held.
	PinnedInUse devices.Size `json:"pinned_in_use"`
	// PinnedTotal is the size, in bytes, of all slots, including those kept for
	// reuse.
	PinnedTotal devices.Size `json:"pinned_total"`
	// PinFailures counts how often a device that locks host memory failed to lock
	// a slot: copies through it are slower.
	PinFailures uint64 `json:"pin_failures"`
	// Registered describes the files' own pages that devices access.
	Registered RegisteredStats `json:"registered"`
}

// RegisteredStats counts copies that devices make from and to files' own pages.
type RegisteredStats struct {
	// Bytes is the size of the parts of files that are registered now: a gauge.
	Bytes devices.Size `json:"bytes"`
	// Hits counts the pieces that found their pages registered, Registered those
	// that had to be registered first.
	Hits       uint64 `json:"hits"`
	Registered uint64 `json:"registered"`
	// Failures counts the pieces that a device could not register. They, and
	// later copies between that file and that device, went through slots.
	Failures uint64 `json:"failures"`
	// Evicted counts the pieces that were dropped to make room for others.
	Evicted uint64 `json:"evicted"`
	// Stale counts the pieces that were found to be no longer registered, since
	// the device was lost or pages were taken from the file unnoticed.
	Stale uint64 `json:"stale"`
	// DirectBytes counts the bytes copied directly. They are included in the
	// path's Bytes.
	DirectBytes uint64 `json:"direct_bytes"`
}

// PathStats counts the copies of one path for one device.
type PathStats struct {
	Path   Path         `json:"path"`
	Device devices.Name `json:"device"`
	// Operations counts the copies that moved every byte.
	Operations uint64 `json:"operations"`
	// Bytes counts the bytes that those moved.
	Bytes uint64 `json:"bytes"`
	// Errors counts the copies that failed, cancelled ones included.
	Errors uint64 `json:"errors"`
	// Seconds is the total time of the Operations.
	Seconds float64 `json:"seconds"`
	// Latency is the histogram of the durations of the Operations.
	Latency []Bucket `json:"latency"`
}

// Bucket counts the operations that took at most LE seconds, including those of
// earlier buckets, as Prometheus does. Operations slower than the last bucket are
// counted in Operations only.
type Bucket struct {
	LE    float64 `json:"le"`
	Count uint64  `json:"count"`
}
