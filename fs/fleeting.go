package fs

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// leftFor is the time the kernel may take from finding a name to opening what
// it is.
const leftFor = 10 * time.Second

// fleeting are the inodes known to the kernel whose names hmcfs may take away
// by itself while the kernel still keeps them: files with an end, and files
// that were moved into publish/, whose names the kernel has moved as it kept
// them. The kernel is not told to drop a name, since that waits for a lock of
// its own that a rename can hold while it waits for the daemon. Instead it
// asks for their attributes each time, and the answer ESTALE makes it look the
// name up anew.
type fleeting struct {
	store *objects.Store
	// count counts them: most of the time there are none, and then nobody
	// need look.
	count atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	inos map[metadata.Ino]fleet
}

// fleet has the state of one.
type fleet struct {
	// published says that the file was moved into publish/, and not out again
	// since.
	published bool
	// left is the time of the last attempt to move it out.
	left time.Time
}

// set notes an inode, or more of one. change gets what was known.
func (f *fleeting) set(ino metadata.Ino, change func(*fleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inos == nil {
		f.inos = map[metadata.Ino]fleet{}
	}
	known := f.inos[ino]
	change(&known)
	f.inos[ino] = known
	f.count.Store(int64(len(f.inos)))
}

// add notes a file with an end.
func (f *fleeting) add(ino metadata.Ino) { f.set(ino, func(*fleet) {}) }

// enters notes, before it is done, that a file is moved into publish/.
func (f *fleeting) enters(ino metadata.Ino) {
	f.set(ino, func(k *fleet) { *k = fleet{published: true} })
}

// leaves notes, before it is done, that a file is moved out of publish/, and
// isOut that it was.
func (f *fleeting) leaves(ino metadata.Ino) {
	f.set(ino, func(k *fleet) { k.left = time.Now() })
}

func (f *fleeting) isOut(ino metadata.Ino) {
	f.set(ino, func(k *fleet) { k.published = false })
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

func (f *fleeting) get(ino metadata.Ino) (known fleet, ok bool) {
	if f.count.Load() == 0 {
		return fleet{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok = f.inos[ino]
	return known, ok
}

// mayHaveLeft says that a file may have been in publish/ a moment ago.
func (f *fleeting) mayHaveLeft(ino metadata.Ino) bool {
	known, ok := f.get(ino)
	return ok && !known.left.IsZero() && time.Since(known.left) < leftFor
}

// hasFled says that an inode's name is one that the kernel keeps by mistake.
// A process that has the file open may go on asking for it, as long as it may read it.
func (f *fleeting) hasFled(ino metadata.Ino) bool {
	known, ok := f.get(ino)
	if !ok {
		return false
	}
	nameless, open := f.store.Nameless(background(), ino)
	return nameless && (known.published || !open)
}

// hasLostName says the same to those who would open it.
func (f *fleeting) hasLostName(ino metadata.Ino) bool {
	if _, ok := f.get(ino); !ok {
		return false
	}
	nameless, _ := f.store.Nameless(background(), ino)
	return nameless
}
