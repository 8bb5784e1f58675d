// Package plan says what each rank does in a collective: who sends which
// elements to whom, in which order, and what becomes of them. A plan is made
// once, holds no memory and no connection, and can be checked without data.
//
//	p, err := plan.Compile(task, shape, plan.Ring)
//	steps := p.Program(rank)
//
// # How a program is run
//
// A rank runs the steps of its program side by side, under these rules and no
// others:
//
//   - a step that touches elements which an earlier step of the program writes,
//     or that writes elements which an earlier one touches, comes after it. Where
//     both have the same range, it may follow element by element;
//   - of two sends to one peer the earlier comes first, and so do two receives
//     from one peer: what is sent is received in order;
//   - a Sync comes after all steps before it, and before all behind it.
//
// Check proves of a plan that under these rules every element of every result
// is made of what it should be, each contribution once; that no rank reads what
// another one may be writing; and that nobody waits for ever, also where no link
// holds a byte that has not been received.
//
// # Determinism
//
// Floating point sums depend on the order of the terms. A plan with Task.Strict
// combines in the order of the ranks, whatever its slices: the same terms give
// the same bits, fused or not, and again. Every other plan gives the same bits
// whenever task, shape and algorithm are the same.
package plan
