// Package fs is POSIX over objects: the only importer of go-fuse and the only
// place that knows errno.
package fs
