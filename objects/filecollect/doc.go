// Package filecollect does collectives whose ranks are files: what is in the files
// of all of them becomes what is in some or all of them.
//
//	err := filecollect.Run(ctx, task, files, nil)             all files are here
//	err := filecollect.Run(ctx, task, files, &filecollect.Nodes{…}) some are on other nodes
//
// It reads sources, which nobody holds still, and writes results, which nobody
// sees yet: they are drafts (objects.Draft) that whoever calls commits when all
// of them are whole.
//
// # The way of the bytes
//
// Files go through host memory in segments, so that a file may be larger than
// memory that is free. Where all files are on one node, each segment of a result
// is one unit of work: the segments of all sources are read and combined in the
// order of the ranks, in memory that stays in the processor's caches, and written
// to each result. That is the direct algorithm of package collective, where the
// ranks are one process and need not wait for each other; it is strict by nature.
//
// Where they are on several nodes, each node combines its own files, the nodes do
// the collective among them (a collective.Group, of which each node is one rank),
// and each writes its results. Three segments are under way at a time: one being
// read, one between the nodes, one being written.
//
//	files of a ─┐ fold                              ┌─> results of a
//	files of b ─┤ fold ──> in ── Group ──> out ─────┤
//	files of c ─┘ fold                              └─> results of c
//
// # Which bits
//
// Floating point sums depend on the order of the terms. With Task.Strict it is
// that of the ranks, wherever the files are: where a node has several of them,
// the nodes exchange the files' bytes, instead of what each has combined. Without
// it, equal files in equal places give equal bits.
//
// # Nodes
//
// A Collector is an extension of a cluster (cluster.Extension): it asks the nodes that
// have files to prepare their parts, has all of them work, and has all commit, or drop
// what they have prepared. A part is kept as long as the node that asked says that it is
// wanted. Verify compares files by the checksums that their nodes make.
//
// # Lock order
//
// Collector.mu comes before the cluster's; measured.mu is a leaf.
package filecollect
