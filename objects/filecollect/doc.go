// Package filecollect runs collectives whose ranks are files: the contents of the source files
// are combined or exchanged, and the result becomes the content of some or all of the files.
//
//	err := filecollect.Run(ctx, task, files, nil)                    all files are on this node
//	err := filecollect.Run(ctx, task, files, &filecollect.Nodes{…})  some are on other nodes
//
// It reads sources, which are not locked against changes, and writes results, which are not
// visible yet: they are drafts (objects.Draft) that the caller commits once all of them are
// complete.
//
// # How bytes move
//
// Files pass through host memory in segments, so a file may be larger than the free memory.
// Where all files are on one node, each segment of a result is one unit of work: the segments
// of all sources are read and combined in the order of the ranks, in memory that stays in the
// processor's caches, and written to each result. That is the direct algorithm of package
// collective, where the ranks are one process and need not wait for each other; it is always
// strict.
//
// Where they are on several nodes, each node combines its own files, the nodes run the
// collective among themselves (a collective.Group, in which each node is one rank), and each
// node writes its results. Three segments are in flight at a time: one being read, one being
// exchanged between the nodes, one being written.
//
//	files of a ─┐ fold                              ┌─> results of a
//	files of b ─┤ fold ──> in ── Group ──> out ─────┤
//	files of c ─┘ fold                              └─> results of c
//
// # Reproducibility
//
// Floating-point sums depend on the order of the terms. With Task.Strict it is the order of
// the ranks, wherever the files are: where a node has several of them, the nodes exchange the
// bytes of the files instead of the result that each node has combined. Without it, identical
// files in identical places give identical bits.
//
// # Nodes
//
// A Collector is an extension of a cluster (cluster.Extension): it asks the nodes that have
// files to prepare their parts, makes all of them run, and makes all of them either commit or
// drop what they have prepared. A part is kept for as long as the node that requested it keeps
// confirming it. Verify compares files by the checksums that their nodes compute.
//
// # Lock order
//
// Collector.mu comes before the cluster's locks; measured.mu is a leaf.
package filecollect
