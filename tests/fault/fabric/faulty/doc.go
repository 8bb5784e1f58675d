// Package faulty injects faults into fabrics: links that are cut at a given byte, ranks that
// stall, and bytes that are delayed or altered.
//
//	faults, all := faulty.Wrap(fabrics)
//	faults.CutAfter(0, 1, 4096)  // the link between 0 and 1, in both directions
//
// A cut acts like the loss of a connection: both ends get fabric.ErrLink, bytes in flight are
// lost, and Reform creates the link anew. To kill a rank, close its fabric.
package faulty
