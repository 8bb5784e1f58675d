// Package bench measures a mount from outside, as its users see it: by system calls on its
// files, in comparison with a directory on tmpfs in the same run.
//
// # Comparison
//
// Every figure is the median over several rounds. In each round every directory is
// measured, one immediately after the other, in rotating order: so other load on the
// machine affects all of them alike. A ratio is the median of the ratios of the rounds.
//
// Files are rewritten in each round, so that a write includes the cost of allocating
// memory, on tmpfs as on a device. Files that are read have just been written.
//
// The workloads (workload_*.go) know nothing of hmcfs; tests/bench measures other file
// systems with them.
package bench
