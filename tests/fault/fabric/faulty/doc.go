// Package faulty breaks fabrics on purpose: links that are cut at a byte, ranks
// that stall, bytes that come late or changed.
//
//	faults, all := faulty.Wrap(fabrics)
//	faults.CutAfter(0, 1, 4096)  // the link between 0 and 1, in both directions
//
// A cut is what the loss of a connection is: both ends get fabric.ErrLink, what
// was on its way is gone, and Reform makes the link anew. A rank that is killed
// is one whose fabric is closed.
package faulty
