// Package place knows where a mount's things are on the machine: its state
// and runtime directories, its locks, its line in the kernel's mount table,
// and who holds it busy. It never touches a file of the mount itself, which
// may hang or be dead.
//
// Everything of a mount is found from its mount point alone: the directories'
// names are made from it, and a mount with directories of its own leaves a
// link where the default would be.
package place
