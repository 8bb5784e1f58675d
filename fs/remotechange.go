package fs

import (
	"slices"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// shared are the files of other nodes that are open, for the pages that the
// kernel has of those that are mapped.
type shared struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[metadata.Ino][]*remoteFile
	// dropping are the inodes whose pages are being dropped; true is once
	// more.
	// +checklocks:mu
	dropping map[metadata.Ino]bool
	drops    sync.WaitGroup
}

// opened notes an open file, and closed that it was closed.
func (s *shared) opened(r *remoteFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open, s.dropping = map[metadata.Ino][]*remoteFile{}, map[metadata.Ino]bool{}
	}
	s.open[r.at] = append(s.open[r.at], r)
}

func (s *shared) closed(r *remoteFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(s.open[r.at], func(o *remoteFile) bool { return o == r })
	if s.open[r.at] = rest; len(rest) == 0 {
		delete(s.open, r.at)
	}
}

// paged lists the inodes that the kernel has pages of, among those that meant
// names.
func (s *shared) paged(meant func(*remoteFile) bool) []metadata.Ino {
	s.mu.Lock()
	defer s.mu.Unlock()
	var inos []metadata.Ino
	for ino, files := range s.open {
		if slices.ContainsFunc(files, func(r *remoteFile) bool { return r.paged.Load() && meant(r) }) {
			inos = append(inos, ino)
		}
	}
	return inos
}

// begin says whether the caller is to drop an inode's pages; else whoever is
// at it does so once more. end says whether he has to.
func (s *shared) begin(ino metadata.Ino) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.dropping[ino]; busy {
		s.dropping[ino] = true
		return false
	}
	s.dropping[ino] = false
	return true
}

func (s *shared) end(ino metadata.Ino) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropping[ino] {
		s.dropping[ino] = false
		return true
	}
	delete(s.dropping, ino)
	return false
}

// remoteChanged drops the kernel's pages of what has changed at another node.
// Names and attributes it keeps none. To drop pages waits for reads of them,
// which may wait for a node, so each inode has a goroutine, one at most.
func (f *filesystem) remoteChanged(i cluster.Invalidation) {
	for _, ino := range f.shared.paged(func(r *remoteFile) bool {
		return r.Node() == i.Node && (i.All || slices.Contains(i.Inos, r.Ino()))
	}) {
		if f.shared.begin(ino) {
			f.shared.drops.Go(func() {
				for again := true; again; again = f.shared.end(ino) {
					f.kernel.InvalidatePages(ino)
				}
			})
		}
	}
}

// keepShared is how long the kernel may keep names and attributes of ours while
// other nodes may change them. To be told to drop a name it would have to be
// told with its lock of the directory (doc.go).
const keepShared = time.Second

// keepFor is how long the kernel may keep names and attributes.
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
		return f.inodeStatus(err)
	}
	return f.errs.status(err)
}
