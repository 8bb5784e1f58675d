// Package copier copies files as `hmcfs cp` does ([Copy]), or to a stream ([Pour],
// [Drain]). Files need not be the kernel's ([Tree]). Between two files on one mount it uses copy_file_range, so that devices
// copy directly; otherwise it uses large buffers, and reads and writes at the same
// time.
//
// # What a copy leaves behind
//
// A target that did not exist is removed when its copy fails or is interrupted. One
// that existed loses its content when the copy begins, as with cp(1); it is left
// truncated to the bytes that were copied.
//
// # Lock order
//
// There are no locks: goroutines pass data to each other through channels.
package copier
