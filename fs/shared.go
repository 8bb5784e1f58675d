package fs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
)

// shared tracks the kernel's cached state of inodes: the daemon must know of its pages
// before setting times, and where other nodes change files.
type shared struct {
	mu sync.Mutex
	// pages counts, by inode, the open files of this and other nodes that the kernel has
	// pages of, for maps.
	// +checklocks:mu
	pages map[metadata.Ino]int
	// dropping holds the inodes of which something is being dropped; true requests another
	// run.
	// +checklocks:mu
	dropping map[metadata.Ino]bool
	// closed is set once the kernel is disconnected.
	// +checklocks:mu
	closed bool
	drops  sync.WaitGroup
}

func newShared() shared {
	return shared{pages: map[metadata.Ino]int{}, dropping: map[metadata.Ino]bool{}}
}

// mapped counts another open file that the kernel has pages of, and unmapped the close of
// such a file.
func (s *shared) mapped(ino metadata.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[ino]++
}

func (s *shared) unmapped(ino metadata.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages[ino]--; s.pages[ino] <= 0 {
		delete(s.pages, ino)
	}
}

func (s *shared) hasPages(ino metadata.Ino) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages[ino] > 0
}

// pagesWhere returns the inodes for which is returns true and that the kernel has pages of.
func (s *shared) pagesWhere(is func(metadata.Ino) bool) []metadata.Ino {
	s.mu.Lock()
	defer s.mu.Unlock()
	var inos []metadata.Ino
	for ino := range s.pages {
		if is(ino) {
			inos = append(inos, ino)
		}
	}
	return inos
}

// drop calls fn, which may wait for the kernel, for an inode, in the background, and again
// if drop was called meanwhile. No two calls for one inode run at the same time.
func (s *shared) drop(ino metadata.Ino, fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if _, busy := s.dropping[ino]; busy {
		s.dropping[ino] = true
		return
	}
	s.dropping[ino] = false
	s.drops.Go(func() {
		for again := true; again; again = s.again(ino) {
			fn()
		}
	})
}

func (s *shared) again(ino metadata.Ino) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropping[ino] {
		s.dropping[ino] = false
		return true
	}
	delete(s.dropping, ino)
	return false
}

// close waits until nothing is being dropped, and prevents further drops.
func (s *shared) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drops.Wait()
}

// notePages records that the kernel reads for its pages, which it indicates by not naming
// the reader.
func (s *shared) notePages(h *fileHandle, in *fuse.ReadIn) {
	if in.ReadFlags&fuse.READ_LOCKOWNER == 0 && h.paged.CompareAndSwap(false, true) {
		s.mapped(metadata.Ino(in.NodeId))
	}
}

// keepShared is the time the kernel may cache names and attributes of this node while other
// nodes may change them. Dropping a name explicitly would take the kernel's lock of the
// directory (doc.go).
const keepShared = time.Second

// keepFor returns the time the kernel may cache names and attributes.
func keepFor(o *Options) time.Duration {
	keep := max(o.CacheTimeout, 0)
	if o.Cluster != nil {
		keep = min(keep, keepShared)
	}
	return keep
}

// isShared reports whether others than the kernel change files of this node: other nodes, or
// sessions.
func isShared(f *filesystem) bool { return f.opts.Cluster != nil || f.guests.seen.Load() }

// ownInodeStatus is inodeStatus for an inode of this node, which can disappear without the
// kernel's knowledge only where others change files.
func (f *filesystem) ownInodeStatus(err error) fuse.Status {
	if isShared(f) {
		return f.errs.inodeStatus(err)
	}
	return f.errs.status(err)
}
