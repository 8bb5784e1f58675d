package fs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// leftFor is the time the kernel may take between finding a name and opening its inode.
const leftFor = 10 * time.Second

// fleeting holds the inodes known to the kernel whose names hmcfs may remove while the
// kernel still caches them: files with a time to live, and files that were moved into
// publish/, whose cached names the kernel has moved along. The kernel is not asked to drop
// a name, since that waits for a lock of its own that a rename can hold while it waits for
// the daemon. Instead the kernel asks for the attributes of these inodes each time, and the
// answer ESTALE makes it repeat the lookup.
type fleeting struct {
	store *objects.Store
	// held, if not nil, records which files leave publish/.
	held *heldState
	// continued is set in a process that follows another, before it serves: the kernel may forget an inode that the
	// other one gave it after it was given it again, and so may still know it.
	continued bool
	// patience is leftFor, except in tests.
	patience time.Duration
	// count is the number of inodes. Usually it is 0, and no lookup is needed.
	count atomic.Int64

	// sweeping is held by a sweep.
	sweeping sync.Mutex

	mu sync.Mutex
	// +checklocks:mu
	inos map[metadata.Ino]fleet
	// timer is that of the next sweep; nil for none.
	// +checklocks:mu
	timer *time.Timer
	// +checklocks:mu
	ended bool
}

// fleet is the state of one inode.
type fleet struct {
	// published is true from the time the file was moved into publish/ until it is moved
	// out again.
	published bool
	// left is the time of the last attempt to move it out.
	left time.Time
	// unsure is set if the kernel may have forgotten the inode: only an earlier process knew of it, or it was one that the kernel
	// forgot.
	unsure bool
}

// set adds an inode, or updates it. change modifies the known state.
func (f *fleeting) set(ino metadata.Ino, change func(*fleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.inos[ino]
	change(&known)
	f.inos[ino] = known
	f.count.Store(int64(len(f.inos)))
}

// add records a file with a time to live.
func (f *fleeting) add(ino metadata.Ino) { f.set(ino, func(k *fleet) { k.unsure = false }) }

// enters records, in advance, that a file is moved into publish/. It returns what was known before, for staysOut.
func (f *fleeting) enters(ino metadata.Ino) (before fleet, known bool) {
	_, known = f.get(ino)
	f.set(ino, func(k *fleet) { before, *k = *k, fleet{published: true} })
	return before, known
}

// staysOut records that a file was not moved into publish/.
func (f *fleeting) staysOut(ino metadata.Ino, before fleet, known bool) {
	f.removeIf(ino, fleet{published: true})
	if _, ok := f.get(ino); known && !ok {
		f.set(ino, func(k *fleet) { *k = before })
	}
}

// entered records that a file is in publish/, or was received there, if that is so: a process that has just
// ended has removed the name, or this one will, and the kernel may be asking for the attributes behind it.
func (f *fleeting) entered(ctx context.Context, ino metadata.Ino) {
	if nameless, _ := f.store.Nameless(ctx, ino); nameless {
		f.enters(ino)
	} else if a, err := f.store.Attr(ctx, ino); err == nil && isPublished(&a) {
		f.enters(ino)
	}
}

// leaves records, in advance, that a file is moved out of publish/, and isOut that the move
// has succeeded.
func (f *fleeting) leaves(ino metadata.Ino) {
	if f.held != nil {
		f.held.leaves(ino)
	}
	f.set(ino, func(k *fleet) { k.left, k.unsure = time.Now(), false })
}

func (f *fleeting) isOut(ino metadata.Ino) {
	f.set(ino, func(k *fleet) { k.published = false })
}

// adopt takes over what an earlier process has recorded: the kernel may still be about to open what it has found then.
// After that time nothing is left to be known of these inodes, and the kernel need not forget them in this process.
func (f *fleeting) adopt(state *heldState) {
	for _, ino := range state.left() {
		f.set(ino, func(k *fleet) { k.left = time.Now() })
		f.doubt(ino)
	}
	f.held = state
}

// doubt has an inode dropped later that the kernel may have forgotten, once nothing is to be known of it.
func (f *fleeting) doubt(ino metadata.Ino) {
	f.set(ino, func(k *fleet) { k.unsure = true })
	f.arm()
}

// arm has the inodes looked through later that the kernel may have forgotten, unless that is to come anyway.
func (f *fleeting) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer == nil && !f.ended {
		f.timer = time.AfterFunc(f.patience, f.sweep)
	}
}

// sweep drops the inodes of which nothing is to be known, of those that the kernel may have forgotten.
func (f *fleeting) sweep() {
	f.sweeping.Lock()
	defer f.sweeping.Unlock()
	f.mu.Lock()
	f.timer = nil
	var unsure []metadata.Ino
	for ino, known := range f.inos {
		if known.unsure && !f.ended {
			unsure = append(unsure, ino)
		}
	}
	f.mu.Unlock()
	for _, ino := range unsure {
		if known, ok := f.get(ino); ok && known.unsure && !f.matters(ino) {
			f.removeIf(ino, known)
		}
		if f.hasEnded() {
			return
		}
	}
	if len(unsure) > 0 {
		f.arm()
	}
}

func (f *fleeting) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// end returns when nothing is looked through any more: the store is about to be closed.
func (f *fleeting) end() {
	f.mu.Lock()
	f.ended = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.sweeping.Lock() // one that has begun
	defer f.sweeping.Unlock()
}

// matters reports whether an answer depends on what is known of an inode.
func (f *fleeting) matters(ino metadata.Ino) bool {
	known, ok := f.get(ino)
	if !ok || f.mayHaveLeft(ino) {
		return ok
	}
	a, err := f.store.Attr(background(), ino)
	if err != nil || known.published {
		return err == nil
	}
	nameless, _ := f.store.Nameless(background(), ino)
	return nameless || a.Expires != metadata.Timespec{}
}

// drop removes an inode that the kernel has forgotten.
func (f *fleeting) drop(ino metadata.Ino) {
	switch known, ok := f.get(ino); {
	case !ok:
	case !f.continued || !f.matters(ino):
		f.removeIf(ino, known)
	case !known.unsure:
		f.doubt(ino)
	}
}

// removeIf removes an inode of which no more is known than was when that was looked at.
func (f *fleeting) removeIf(ino metadata.Ino, was fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inos[ino] == was {
		delete(f.inos, ino)
		f.count.Store(int64(len(f.inos)))
	}
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

// mayHaveLeft reports whether a file may have been in publish/ a moment ago.
func (f *fleeting) mayHaveLeft(ino metadata.Ino) bool {
	known, ok := f.get(ino)
	return ok && !known.left.IsZero() && time.Since(known.left) < f.patience
}

// hasFled reports whether the name that the kernel caches for an inode no longer exists. A
// process that has the file open may keep asking for its attributes, as long as it may read
// the file.
func (f *fleeting) hasFled(ino metadata.Ino) bool {
	known, ok := f.get(ino)
	if !ok {
		return false
	}
	nameless, open := f.store.Nameless(background(), ino)
	return nameless && (known.published || !open)
}

// hasLostName is hasFled for a process that is about to open the file.
func (f *fleeting) hasLostName(ino metadata.Ino) bool {
	if _, ok := f.get(ino); !ok {
		return false
	}
	nameless, _ := f.store.Nameless(background(), ino)
	return nameless
}
