// Package fusion reduces many small tensors as a few large ones: the hundreds of tensors
// of a training step are copied into buckets; each bucket is reduced once, and the results
// are copied back.
//
//	f, err := fusion.New(ctx, group, table, fusion.Options{Type: elem.Float32, Op: elem.Sum})
//	t, err := f.Add(gradient)      // as soon as it is ready
//	err = f.Wait(ctx, t)           // now it is the sum of all ranks' gradients
//
// All ranks add the same tensors in the same order; the times of the calls may differ.
//
// # Where a bucket ends
//
//	bytes    after the tensor that brings it to Options.Bytes
//	full     before a tensor for which it has no room
//	large    before and after a tensor of more than Options.Bytes, which is reduced in
//	         place
//	split    where Options.Ends says: static splits, see ByIndex and ByPercent
//	window   when its first tensor has waited for Options.Window
//	flush    by Flush and Close
//
// The last two depend on time, and no two ranks call at the same time. So one rank, the
// leader, decides on every cut, and announces each bucket to the others. Then all ranks
// compare their tensors in the bucket: if they have added different ones, all get an error
// that says so, and nothing is reduced.
//
// # The life of a bucket
//
//	packed ──> agreed on ──> reduced ──> unpacked
//
// One bucket is packed, another reduced and a third unpacked at the same time, as long as
// there is a buffer (Options.Buffers) for each. A bucket is packed before its end is
// known: tensors packed beyond its end are packed again, into the next one.
//
// Tensors are aligned to 128 bytes, with zeros between them. The bucket of a tensor, and
// its position there, may affect the rounding of floating point sums, unless the group is
// Strict.
//
// # Lock order
//
// Fuser.mu is taken with no other lock held, and no other lock is taken under it.
package fusion
