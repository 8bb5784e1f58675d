package fs

import (
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
)

// fleeting are the inodes known to the kernel whose names hmcfs may take away
// by itself while the kernel still keeps them: files with an end, and files
// that were moved into publish/, whose names the kernel has moved as it kept
// them. The kernel is not told to drop a name, since that waits for a lock of
// its own that a rename can hold while it waits for the daemon. Instead it
// asks for their attributes each time, and the answer ESTALE makes it look the
// name up anew.
type fleeting struct {
	// count is how many there are: most of the time none, and then nobody
	// need look.
	count atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	inos map[metadata.Ino]struct{}
}

func (f *fleeting) add(ino metadata.Ino) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inos == nil {
		f.inos = map[metadata.Ino]struct{}{}
	}
	f.inos[ino] = struct{}{}
	f.count.Store(int64(len(f.inos)))
}

// drop forgets an inode that the kernel has forgotten.
func (f *fleeting) drop(ino metadata.Ino) {
	if f.count.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.inos, ino)
	f.count.Store(int64(len(f.inos)))
}

func (f *fleeting) has(ino metadata.Ino) bool {
	if f.count.Load() == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.inos[ino]
	return ok
}

// hasFled says that an inode's name is one that the kernel keeps by mistake.
// Who has the file open may go on asking for it.
func (f *filesystem) hasFled(ino metadata.Ino) bool {
	if !f.fleeting.has(ino) {
		return false
	}
	nameless, open := f.store.Nameless(background(), ino)
	return nameless && !open
}

// hasLostName says the same to those who would open it.
func (f *filesystem) hasLostName(ino metadata.Ino) bool {
	if !f.fleeting.has(ino) {
		return false
	}
	nameless, _ := f.store.Nameless(background(), ino)
	return nameless
}
