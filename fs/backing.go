package fs

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// registrar registers files with the kernel, which then serves opens of such a file itself,
// and unregisters them.
type registrar interface {
	register(file *os.File) (id int32, err error)
	unregister(id int32) error
}

// backings are the open files of the host tier. All opens of one inode are served the same
// way, since the kernel does not allow a mix, and share one registration.
type backings struct {
	log *zap.Logger
	// kernel is nil where passthrough is off.
	kernel registrar
	// first is the number of the file with which passthrough was tested; 0 if it was not.
	first int32
	// reason says why passthrough is off; nil when it is on.
	reason atomic.Pointer[string]
	// writers counts the handles open for writing, of all inodes. Usually it is 0, and
	// isWritten can skip the lookup.
	writers atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	open map[metadata.Ino]*backing
}

// backing is one open inode of the host tier.
type backing struct {
	// refs and writers count open handles, protected by backings.mu.
	refs    int
	writers int

	mu sync.Mutex
	// tried is set once registration was attempted. +checklocks:mu
	tried bool
	// id is the kernel's number for the file; 0 when it did not accept the file.
	// +checklocks:mu
	id int32
}

// acquire counts an open of an inode and returns the kernel's number for its file, or 0
// when the daemon serves the file.
func (b *backings) acquire(ino metadata.Ino, file *os.File, writable bool) int32 {
	b.mu.Lock()
	entry := b.open[ino]
	if entry == nil {
		entry = &backing{}
		b.open[ino] = entry
	}
	entry.refs++
	if writable {
		entry.writers++
		b.writers.Add(1)
	}
	b.mu.Unlock()

	entry.mu.Lock()
	defer entry.mu.Unlock()
	if !entry.tried {
		entry.tried = true
		entry.id = b.register(file)
	}
	return entry.id
}

// adopt takes over the number under which another process has registered the file of an inode; 0 if it has served the
// file itself. While the file is open, the kernel refuses another.
func (b *backings) adopt(ino metadata.Ino, id int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[ino] == nil {
		b.open[ino] = &backing{tried: true, id: id}
	}
}

// dropUnused unregisters what was adopted and then not opened.
func (b *backings) dropUnused() {
	b.mu.Lock()
	var unused []*backing
	for ino, entry := range b.open {
		if entry.refs == 0 {
			delete(b.open, ino)
			unused = append(unused, entry)
		}
	}
	b.mu.Unlock()
	for _, entry := range unused {
		b.unregister(entry)
	}
}

// mostLost is the number of files that an earlier process can have registered for requests that it had not
// answered: go-fuse carries out one in each thread that reads from the kernel, or a few.
const mostLost = 1024

// dropLost unregisters files of an earlier process that are not open any more: one that it had registered, but not recorded yet, or
// whose record it had removed already. maybe are the numbers in removed records. The kernel numbers files in turn, so those that were not
// recorded yet have the last numbers before the first one of this process. It must be called before requests are served, after adopt.
func (b *backings) dropLost(maybe []int32) {
	for id := max(1, b.first-mostLost); id < b.first; id++ {
		maybe = append(maybe, id)
	}
	b.mu.Lock()
	open := map[int32]bool{0: true}
	for _, entry := range b.open {
		entry.mu.Lock()
		open[entry.id] = true
		entry.mu.Unlock()
	}
	b.mu.Unlock()
	lost := 0
	for _, id := range maybe {
		if !open[id] && b.kernel.unregister(id) == nil { // usually there is none
			lost++
		}
	}
	if lost > 0 {
		b.log.Info("unregistered files that a daemon which died had not recorded", zap.Int("files", lost))
	}
}

func (b *backings) register(file *os.File) int32 {
	if b.reason.Load() != nil {
		return 0
	}
	id, err := b.kernel.register(file)
	if err == nil {
		return id
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOTTY) {
		b.disable(passthroughRefusal(err))
		return 0
	}
	b.log.Warn("passthrough not possible for a file; the daemon serves it, which is slower", zap.Error(err))
	return 0
}

func (b *backings) release(ino metadata.Ino, writable bool) {
	b.mu.Lock()
	entry := b.open[ino]
	entry.refs--
	if writable {
		entry.writers--
		b.writers.Add(-1)
	}
	last := entry.refs == 0
	if last {
		delete(b.open, ino)
	}
	b.mu.Unlock()
	if last {
		b.unregister(entry)
	}
}

func (b *backings) unregister(entry *backing) {
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if entry.id == 0 {
		return
	}
	if err := b.kernel.unregister(entry.id); err != nil {
		b.log.Warn("could not end the passthrough of a file", zap.Error(err))
	}
}

// isWritten reports whether an inode of the host tier is open for writing.
func (b *backings) isWritten(ino metadata.Ino) bool {
	if b.writers.Load() == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.open[ino]
	return entry != nil && entry.writers > 0
}

// disable turns passthrough off for files that are not open yet, and logs it once.
func (b *backings) disable(reason string) {
	if b.reason.CompareAndSwap(nil, &reason) {
		b.log.Warn("passthrough is off; the daemon serves host-tier files, which is slower", zap.String("reason", reason))
	}
}
