// Package treetest compares trees of files: the same operations must have the same results in
// each tree, whichever node owns the files.
package treetest
