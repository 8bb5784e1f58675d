// Package fusion reduces many small tensors as few large ones: what a training
// step has hundreds of is copied into a bucket, reduced once, and copied back.
//
//	f, err := fusion.New(ctx, group, table, fusion.Options{Type: elem.Float32, Op: elem.Sum})
//	t, err := f.Add(gradient)      // as soon as it is there
//	err = f.Wait(ctx, t)           // now it is the sum of all ranks' gradients
//
// All ranks add the same tensors in the same order; when, is up to each.
//
// # Where a bucket ends
//
//	bytes    with the tensor that brings it to Options.Bytes
//	full     before a tensor that it has no room for
//	large    before and behind a tensor of more than Options.Bytes, which is
//	         reduced where it is
//	split    where Options.Ends says: static splits, see ByIndex and ByPercent
//	window   when its first tensor has waited for Options.Window
//	flush    by Flush and Close
//
// The last two depend on a clock, and no two ranks have the same. So one rank,
// the leader, decides about every cut, and tells the others before each bucket.
// Then all of them compare what they have in it: ranks that add different
// tensors get an error that says so, and nothing is reduced.
//
// # The life of a bucket
//
//	packed ──> agreed on ──> reduced ──> unpacked
//
// Packing, reducing and unpacking of three buckets go on at the same time, as
// long as there is a buffer (Options.Buffers) for each. A buffer is packed
// before its end is known: where it begins is. What was packed behind an end is
// packed again.
//
// Tensors lie at multiples of 128 bytes, with zeros between them. In which
// bucket a tensor is, and where, may change how a floating point sum is
// rounded, unless the group is Strict.
//
// # Lock order
//
// Fuser.mu is taken with no other lock held, and nothing is called under it but
// the condition that it is of.
package fusion
