// Package plan computes what each rank does in a collective: which elements it sends to
// which ranks, in which order, and how it combines the elements it receives. A plan is
// made once, holds no memory and no connection, and can be checked without data.
//
//	p, err := plan.Compile(task, shape, plan.Ring)
//	steps := p.Program(rank)
//
// Task describes the collective, Shape how the ranks are connected, and Algorithm names
// the algorithm; Estimates predicts the time of each. A Program lists the Steps of one
// rank, and a Step works on Blocks: ranges of its source, its result, or scratch memory.
//
// # How a program runs
//
// A rank runs the steps of its program concurrently, under these rules only:
//
//   - a step that touches elements which an earlier step of the program writes, or that
//     writes elements which an earlier one touches, comes after it. Where both have the
//     same range, it may follow element by element;
//   - sends to one peer happen in program order, and so do receives from one peer:
//     elements are received in the order in which they are sent;
//   - steps that need no peer may run one after the other, in their order;
//   - a Sync comes after all steps before it, and before all steps after it.
//
// Nothing else may delay a step: on every link, the next send and the next receive must be
// attempted, however far apart they are in the program. Program.Waits returns what the
// first and the last rule mean for each step.
//
// # What is proved
//
// Check knows nothing of algorithms. It matches the n-th send of a link with the n-th
// receive, follows each element of each source through all memories, and proves that
//
//   - every element of every result is made of the right contributions, each exactly once,
//     with the same tree of sums at all ranks of an AllReduce, in the order of the ranks
//     where that is required, and divided once;
//   - sources that are not in place are not modified;
//   - no rank reads what another rank may be writing: a Sync separates the accesses of two
//     ranks to the memory of one of them;
//   - there is no deadlock, even if no link buffers a single byte;
//   - no rank leaves a Barrier that another rank has not entered.
//
// Check takes milliseconds: a proof about a range holds for all its elements.
//
// # Determinism
//
// Floating point sums depend on the order of the terms. A plan with Task.Strict combines
// in the order of the ranks, however it slices the elements: the same terms give the same
// bits in every run, fused or not. Any other plan gives the same bits whenever task, shape
// and algorithm are the same.
package plan
