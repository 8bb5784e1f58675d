package fs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
)

// shared tracks what the kernel keeps of inodes: of its pages the daemon must know
// before it sets times, and where other nodes change them.
type shared struct {
	mu sync.Mutex
	// pages counts the open files, of ours or of other nodes', of whose content
	// the kernel has pages, for maps, by inode.
	// +checklocks:mu
	pages map[metadata.Ino]int
	// dropping are the inodes of which something is being dropped; true is
	// once more.
	// +checklocks:mu
	dropping map[metadata.Ino]bool
	// closed says that there is no kernel any more.
	// +checklocks:mu
	closed bool
	drops  sync.WaitGroup
}

func newShared() shared {
	return shared{pages: map[metadata.Ino]int{}, dropping: map[metadata.Ino]bool{}}
}

// mapped notes an open file more of which the kernel has pages, and unmapped
// that it was closed.
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

// pagesWhere lists those of some inodes of which the kernel has pages.
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

// drop calls fn, which may wait for the kernel, for an inode, and once more if
// it was called meanwhile. Two of one inode never run at a time.
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

// close returns when nothing is being dropped, and nothing will be.
func (s *shared) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drops.Wait()
}

// notePages notes that the kernel reads for its pages: it does not say on
// whose behalf.
func (s *shared) notePages(h *fileHandle, in *fuse.ReadIn) {
	if in.ReadFlags&fuse.READ_LOCKOWNER == 0 && h.paged.CompareAndSwap(false, true) {
		s.mapped(metadata.Ino(in.NodeId))
	}
}

// keepShared is the time the kernel may keep names and attributes of ours while
// other nodes may change them. To be told to drop a name it would have to be
// told with its lock of the directory (doc.go).
const keepShared = time.Second

// keepFor returns the time the kernel may keep names and attributes.
func keepFor(o *Options) time.Duration {
	keep := max(o.CacheTimeout, 0)
	if o.Cluster != nil {
		keep = min(keep, keepShared)
	}
	return keep
}

// ownInodeStatus is inodeStatus for an inode of ours, which can have gone
// without the kernel's knowing only where there are other nodes.
func (f *filesystem) ownInodeStatus(err error) fuse.Status {
	if f.opts.Cluster != nil {
		return f.errs.inodeStatus(err)
	}
	return f.errs.status(err)
}
