package fs

import (
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// releaseWait bounds the wait for the end of a handle that has been
// closed already, perhaps: the kernel tells of it after close(2) has returned.
const releaseWait = 2 * time.Second

// published are the files of publish/ that are open. The kernel's pages of a
// file are shared by all who have it open, and what is read out of them is not
// asked for again. So pages are given only to a handle that is the file's only
// one, and there is no other one beside it from then on.
type published struct {
	store *objects.Store
	errs  *errnoTable
	// wait bounds the wait for handles to end. It does not change.
	wait time.Duration

	mu sync.Mutex
	// +checklocks:mu
	files map[metadata.Ino]*publishedFile
}

// publishedFile is one of them. published.mu guards it.
type publishedFile struct {
	handles int
	// mapper is the handle that has been given pages; 0 is none.
	mapper uint64
	// changed is closed, and made anew, when a handle has ended.
	changed chan struct{}
}

// open counts a handle of a file; ok is false when somebody has it mapped.
func (p *published) open(ino metadata.Ino) (ok bool) {
	return p.await(ino, func(f *publishedFile) bool {
		if f.mapper != 0 {
			return false
		}
		f.handles++
		return true
	})
}

// mapped says whether a handle may be given pages of its file, and keeps
// others out then.
func (p *published) mapped(ino metadata.Ino, handle uint64) (ok bool) {
	return p.await(ino, func(f *publishedFile) bool {
		if f.mapper == 0 && f.handles == 1 {
			f.mapper = handle
		}
		return f.mapper == handle
	})
}

// await tries something until it succeeds, each time that a handle has ended,
// for as long as a handle that was closed may take to end.
func (p *published) await(ino metadata.Ino, try func(*publishedFile) bool) bool {
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	for {
		changed, done := p.try(ino, try)
		if done {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}

func (p *published) try(ino metadata.Ino, try func(*publishedFile) bool) (changed <-chan struct{}, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[ino]
	if f == nil {
		if p.files == nil {
			p.files = map[metadata.Ino]*publishedFile{}
		}
		f = &publishedFile{changed: make(chan struct{})}
		p.files[ino] = f
	}
	return f.changed, try(f)
}

// release ends a handle.
func (p *published) release(ino metadata.Ino, handle uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[ino]
	if f.handles--; f.mapper == handle {
		f.mapper = 0
	}
	if f.handles == 0 {
		delete(p.files, ino)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}
