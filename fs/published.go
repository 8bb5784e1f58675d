package fs

import (
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// releaseWait bounds the wait for the release of a handle that may already have been
// closed: the kernel sends RELEASE after close(2) has returned.
const releaseWait = 2 * time.Second

// published holds the open files of publish/. All openers of a file share the kernel's
// pages of it, and bytes read from them are not requested again. So pages are only given to
// a handle that is the file's only one, and no other handle is opened beside it from then
// on.
type published struct {
	store *objects.Store
	errs  *errnoTable
	// wait bounds the wait for the release of handles. It is constant.
	wait time.Duration
	// held, if not nil, records which handles have been given pages.
	held *heldState

	mu sync.Mutex
	// +checklocks:mu
	files map[metadata.Ino]*publishedFile
}

// publishedFile is one open file. published.mu guards it.
type publishedFile struct {
	handles int
	// mapper is the handle that has been given pages; 0 means none.
	mapper uint64
	// changed is closed and replaced when a handle is released.
	changed chan struct{}
}

// open counts a handle of a file; ok is false while another handle has it mapped.
func (p *published) open(ino metadata.Ino) (ok bool) {
	return p.await(ino, func(f *publishedFile) bool {
		if f.mapper != 0 {
			return false
		}
		f.handles++
		return true
	})
}

// mapped reports whether a handle may be given pages of its file, and if so keeps other
// handles out.
func (p *published) mapped(ino metadata.Ino, handle uint64) (ok bool) {
	ok = p.await(ino, func(f *publishedFile) bool {
		if f.mapper == 0 && f.handles == 1 {
			f.mapper = handle
		}
		return f.mapper == handle
	})
	if ok && p.held != nil {
		p.held.isSole(handle)
	}
	return ok
}

// adopt keeps other handles out, as for one that an earlier process has given pages. The handle is the file's only one.
func (p *published) adopt(ino metadata.Ino, handle uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[ino].mapper = handle
}

// await repeats try until it succeeds, each time that a handle is released, for as long as
// the release of a closed handle may take.
func (p *published) await(ino metadata.Ino, try func(*publishedFile) bool) bool {
	late := time.After(p.wait)
	for {
		changed, done := p.try(ino, try)
		if done {
			return true
		}
		select {
		case <-changed:
		case <-late:
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
