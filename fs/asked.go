package fs

import (
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// askedSlots is roughly the number of threads that may, at the same time, open files that
// have just left publish/.
const askedSlots = 1024

// asked remembers which threads were told to look up again a file that has just left
// publish/. The kernel opens an inode without saying by which name: a process that found
// the file in publish/, and opens it after another process has moved it away, would open it
// like any other file, and both processes would have received it. When the open fails with
// ESTALE, the kernel repeats the lookup of the name, once. Only a process that finds the
// file at its present name opens it a second time. A guest knows by which name it opens a file
// (hasMissed), and many calls of one guest proceed at once.
type asked struct {
	mu sync.Mutex
	// slots are indexed by thread. A thread replaces another one's entry in its slot. There are askedSlots, in memory that the
	// next process has as well if the mount is held.
	// +checklocks:mu
	slots []askedSlot
}

// askedSlot is a thread and the inode that it was told to look up again.
type askedSlot struct {
	thread uint32
	_      uint32
	ino    metadata.Ino
}

func newAsked() asked { return asked{slots: make([]askedSlot, askedSlots)} }

// keepIn has the entries in other memory from now on, with those that are there.
func (a *asked) keepIn(slots []askedSlot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots = slots
}

// again reports whether a thread was told so before, and records that it now has been.
func (a *asked) again(thread uint32, ino metadata.Ino) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	slot := &a.slots[thread%askedSlots]
	if slot.thread == thread && slot.ino == ino {
		return true
	}
	slot.thread, slot.ino = thread, ino
	return false
}

// forget drops the entries of an inode that enters publish/, perhaps again.
func (a *asked) forget(ino metadata.Ino) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.slots {
		if a.slots[i].ino == ino {
			a.slots[i].ino = 0
		}
	}
}
