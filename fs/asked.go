package fs

import (
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// askedSlots is the number of threads that may open files that have just left publish/
// at the same time, more or less.
const askedSlots = 1024

// asked remembers which threads were told to look a file up again that has
// just left publish/. The kernel opens an inode and does not say by which name:
// who has found it in publish/, and opens it when somebody else has moved it
// away, would have it as any file, and both would have received it. Told that
// what it opens is stale, the kernel looks the name up anew, once. Only who
// finds the file where it is now opens it a second time.
type asked struct {
	mu sync.Mutex
	// slots are by thread. A thread that finds another's takes it over.
	// +checklocks:mu
	slots [askedSlots]struct {
		thread uint32
		ino    metadata.Ino
	}
}

// again says whether a thread was told before, and notes that it is now.
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

// forget is called when an inode comes into publish/, perhaps again.
func (a *asked) forget(ino metadata.Ino) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.slots {
		if a.slots[i].ino == ino {
			a.slots[i].ino = 0
		}
	}
}
