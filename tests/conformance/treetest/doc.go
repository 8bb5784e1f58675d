// Package treetest holds trees of files against each other: the same operations have the
// same results in each, whoever has the files.
package treetest
