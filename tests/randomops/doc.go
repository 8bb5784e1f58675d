// Package randomops compares hmcfs with the kernel's tmpfs: it makes a random
// program of file operations, runs it on both, and compares what each
// operation answered, byte by byte. A program on which they differ is made as
// small as it can be and told as text, which can be run again.
//
//	p := randomops.Generate(seed, 200)
//	want := randomops.Run(p, reference)
//	got := randomops.Run(p, mount)
//	if d := randomops.Compare(p, want, got); d != nil { … }
//
// # Programs
//
// A program is lines of a verb and its arguments; # begins a comment:
//
//	open 0 A/f rw,creat 644
//	write 0 4095 10 77      # at 4095, 10 bytes of the content that 77 names
//	punch 0 0 4096
//	tree
//
// Handles and maps are in numbered slots; an operation on an empty slot does
// nothing, on both sides, so any part of a program is a program. Paths begin
// with A or B, which are two directories: of one device or of two. Verbs
// tells all operations.
//
// # What is compared
//
// For each operation its errno, or what it moved; for tree all names with
// type, mode, links, owner, size, content and attributes; at the end the
// handles too, whose files may have no name any more. Where data and holes
// lie is each filesystem's own affair: the verb holes checks that what is
// claimed hangs together and that a hole reads as zeros.
package randomops
