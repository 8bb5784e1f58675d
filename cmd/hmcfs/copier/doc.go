// Package copier copies files as `hmcfs cp` does: with copy_file_range where
// both files are on one mount, so that a copy between two devices is theirs
// to make, and otherwise with large buffers, reading and writing at the same
// time.
//
// # What a copy leaves behind
//
// A target that did not exist is removed when its copy fails or is
// interrupted. One that existed has lost its content when the copy begins, as
// with cp(1); it is left with the bytes that were copied, and their number is
// its size.
//
// # Lock order
//
// No locks: goroutines hand what they have to each other by channels.
package copier
