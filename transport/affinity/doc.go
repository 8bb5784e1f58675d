// Package affinity puts threads that move bytes, and the interrupts of network
// cards, on the processors nearest to the device or card that they serve.
//
//	plan, err := affinity.Make(affinity.Options{})   // what should run where
//	results := plan.ApplyIRQs("/proc")               // needs root
//
//	pinner := affinity.NewPinner(machine)
//	leave := pinner.Enter(node)                      // this goroutine's thread
//	defer leave()
//
// A machine with one NUMA node offers no choice: its plan says so, and a Pinner
// does nothing.
//
// A goroutine that has entered a node is locked to its thread until it leaves;
// the thread then gets its previous processors back. A process that is restricted
// to fewer processors than a node has (taskset, a container) stays on those; if
// none of them belongs to the node, nothing is done.
//
// # Lock order
//
// No locks.
package affinity
