// Package affinity puts threads that move bytes, and the interrupts of network
// cards, on the processors that are nearest to what they serve.
//
//	plan, err := affinity.Make(affinity.Options{})   // what should run where
//	results := plan.ApplyIRQs("/proc")               // needs root
//
//	pinner := affinity.NewPinner(machine)
//	leave := pinner.Enter(node)                      // this goroutine's thread
//	defer leave()
//
// A machine with one NUMA node has nothing to choose: its plan says so, and a
// Pinner does nothing.
//
// A goroutine that has entered a node keeps its thread until it leaves, and the
// thread gets back the processors that it had. A process that was given fewer
// processors than a node has (taskset, a container) stays on those; where none of
// them is of the node, nothing is done.
//
// # Lock order
//
// No locks.
package affinity
