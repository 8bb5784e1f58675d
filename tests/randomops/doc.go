// Package randomops compares hmcfs with the kernel's tmpfs: it generates a random program of
// file operations, runs it on both, and compares the results of each operation byte by byte.
// A program on which they differ is minimized and printed as text, which can be run again.
//
//	p := randomops.Generate(seed, 200)
//	want := randomops.Run(p, reference)
//	got := randomops.Run(p, mount)
//	if d := randomops.Compare(p, want, got); d != nil { … }
//
// # Programs
//
// A program consists of lines with a verb and its arguments; # starts a comment:
//
//	open 0 A/f rw,creat 644
//	write 0 4095 10 77      # at 4095, 10 bytes of the content with seed 77
//	punch 0 0 4096
//	tree
//
// Handles and maps are in numbered slots. An operation on an empty slot does nothing on either
// side, so any part of a program is a valid program. Paths begin with A or B, two directories
// of one device or of two. Verbs lists all operations.
//
// # What is compared
//
// For each operation its errno, or the bytes it moved; for tree all names with type, mode,
// links, owner, size, content and attributes; at the end also the handles, whose files may have
// no name any more. Each filesystem may place data and holes as it likes: the verb holes
// checks that the reported layout is consistent and that holes read as zeros.
package randomops
