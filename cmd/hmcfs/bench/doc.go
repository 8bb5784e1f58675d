// Package bench measures a mount from outside, as its users see it: by system
// calls on its files, beside a directory on tmpfs in the same run.
//
// # What is compared
//
// Every figure is the median of some rounds. In each round every directory
// has its turn, one right after the other, and the order rotates: what else
// the machine does in the meantime hits all of them. A ratio is the median of
// the rounds' own ratios.
//
// Files are written anew in each round, so that a write pays for its memory,
// on tmpfs as on a device. The files that are read have just been written.
//
// The workloads (workload_*.go) know nothing of hmcfs; tests/bench measures
// other file systems with them.
package bench
