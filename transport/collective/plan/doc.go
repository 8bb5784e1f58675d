// Package plan says what each rank does in a collective: who sends which
// elements to which ranks, in which order, and what becomes of them. A plan is made
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
//   - steps that need no peer may be run one after the other, in their order;
//   - a Sync comes after all steps before it, and before all behind it.
//
// Nothing else may make a step wait: of every link the next send and the next
// receive have to be tried, however far apart they are in the program.
// Program.Waits says what the first and the last rule mean for each step.
//
// # What is proved
//
// Check knows nothing of algorithms. It joins the n-th send of a link with the
// n-th receive, follows each element of each source through all memories, and
// proves that
//
//   - every element of every result is made of what it should be, each
//     contribution once, all ranks of an AllReduce with the same tree of sums,
//     in the order of the ranks where that is asked for, and divided once;
//   - sources that are not in place stay as they are;
//   - no rank reads what another one may be writing: between what two ranks do
//     with one's memory there is a Sync;
//   - nobody waits for ever, also where no link holds a byte that has not been
//     received;
//   - no rank is through a Barrier that another one has not come to.
//
// It takes milliseconds: what is proved of ranges holds for all their elements.
//
// # Determinism
//
// Floating point sums depend on the order of the terms. A plan with Task.Strict
// combines in the order of the ranks, whatever its slices: the same terms give
// the same bits, fused or not, and again. Every other plan gives the same bits
// whenever task, shape and algorithm are the same.
package plan
