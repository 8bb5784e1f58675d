// Package place locates what belongs to a mount on the machine: its state and
// runtime directories ([Paths]), its locks ([Lock]), its line in the kernel's mount
// table ([Mount]), and the processes that keep it busy ([User]). It never accesses a
// file of the mount itself, which may hang or be dead.
//
// The mount point alone is enough to find everything: the names of the directories
// are derived from it, and a mount whose directories are not the default ones
// leaves a link in the default place.
package place
