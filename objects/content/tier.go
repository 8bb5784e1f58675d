package content

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
)

const (
	// soon bounds how long a caller that finds the device full waits for the memory of
	// an inode without names and handles. The kernel forgets such an inode before
	// unlink returns, unless a process refers to it, and the daemon receives the
	// FORGET a moment later: on a busy machine more than 100 ms later.
	soon = 2 * time.Second
	// statfsWait bounds how long a query for free memory waits for it.
	statfsWait = 100 * time.Millisecond
)

// Tier is one device as the store uses it: files of the host tier, or an arena in device
// memory, which starts empty with every epoch. Its methods may be called from any
// goroutine.
type Tier struct {
	Dev   devices.Device
	Name  metadata.DeviceName
	Root  metadata.Ino  // the device's directory
	Files devices.Files // nil for device memory
	arena *arena.Arena  // nil for the host tier
	late  late          // frees that wait for readers
	// leaving counts orphans that the kernel is expected to forget soon.
	leaving late
	kept    *keptTier // nil for memory that ends with the process
	// The paces of copies within it, from another device, and from another machine.
	inside, across, remote pace
}

// NewTier sets up a device for the store. Close releases what it takes.
func NewTier(dev devices.Device, o arena.Options) (*Tier, error) {
	t := &Tier{
		Dev: dev, Name: metadata.DeviceName(dev.Info().Name),
		inside: pace{want: pieceTime}, across: pace{want: pieceTime}, remote: pace{want: farTime},
	}
	if files, ok := devices.FilesOf(dev); ok {
		t.Files = files
		return t, nil
	}
	a, err := arena.New(dev, o)
	if err != nil {
		return nil, fmt.Errorf("set up the memory of %s: %w", t.Name, err)
	}
	t.arena = a
	return t, nil
}

// Epoch returns the device's current incarnation, as records store it.
func (t *Tier) Epoch() metadata.Epoch { return metadata.Epoch(t.Dev.Epoch()) }

// PastEpoch returns an incarnation before the current one, for records of lost content.
func (t *Tier) PastEpoch() metadata.Epoch { return t.Epoch() - 1 }

// Usage returns the numbers for df: the memory of the files on the host tier, leased pages
// on all others. Pages that the arena holds and that are not leased count as free.
func (t *Tier) Usage() (devices.Usage, error) {
	t.settle(statfsWait)
	device, err := t.Dev.Usage()
	if err != nil || t.Files != nil {
		return device, err
	}
	a := t.arena.Usage()
	free := min(a.Total-a.Leased, device.Free+a.Held-a.Leased)
	return devices.Usage{Total: a.Total, Used: a.Total - free, Free: free}, nil
}

// settle waits, for at most limit, for the memory of orphans that is about to be freed.
func (t *Tier) settle(limit time.Duration) {
	came := t.leaving.next()
	if came == nil {
		return
	}
	enough := time.After(limit)
	for ; came != nil; came = t.leaving.next() {
		select {
		case <-came:
		case <-enough:
			return
		}
	}
}

// MakeRoom waits for the memory of orphans if less than n bytes, or less than an eighth of
// the total, is free. On the host tier a full tmpfs also fails writes by passthrough,
// which the daemon does not see.
func (t *Tier) MakeRoom(n devices.Size) {
	if t.leaving.next() == nil {
		return
	}
	if u, err := t.Dev.Usage(); err != nil || u.Free < max(n, u.Total/8) {
		t.settle(soon)
	}
}

// ExpectMemory makes callers that find the device full wait for the memory of an orphan,
// until the first call of end, or for two seconds.
func (t *Tier) ExpectMemory() (end func()) { return t.leaving.expect(soon) }

// Held returns the memory, in bytes, that the arena has allocated on the device; 0 for the
// host tier.
func (t *Tier) Held() devices.Size {
	if t.arena == nil {
		return 0
	}
	return t.arena.Usage().Held
}

// Trim returns memory to the device that no object has used for a while.
func (t *Tier) Trim() error {
	if t.arena == nil {
		return nil
	}
	return t.arena.Trim()
}

// Close returns the arena's memory to the device, and drops what is kept of it.
func (t *Tier) Close() error {
	if t.arena == nil {
		return nil
	}
	err := t.arena.Close()
	if t.kept != nil {
		err = errors.Join(err, t.kept.drop(), t.kept.leave())
	}
	return err
}

// Leave is Close, except that what is kept stays, for the process that follows.
func (t *Tier) Leave() error {
	if t.arena == nil {
		return nil
	}
	err := t.arena.Leave()
	if t.kept != nil {
		err = errors.Join(err, t.kept.leave())
	}
	return err
}

// errFound ends a search.
var errFound = errors.New("found")

// HasFile reports whether a file is one of the tier's. All of them are on one filesystem,
// so the first one that exists decides whether to look at the others; a filesystem that
// is not the tier's own has other files too. If the search fails, the answer is true.
func (t *Tier) HasFile(file owner.FileID) bool {
	if t.Files == nil {
		return false
	}
	ours := false
	err := t.Files.Each(func(id uint64) error {
		st, err := t.Files.Stat(id)
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile; check the next one
		}
		if ours = st.Dev == file.Dev && st.Ino == file.Ino; ours || st.Dev != file.Dev {
			return errFound
		}
		return nil
	})
	return ours || err != nil && !errors.Is(err, errFound)
}

// late counts frees that are about to happen, so that a write that finds the device full
// waits for them instead of failing while memory without a name is being freed.
type late struct {
	mu sync.Mutex
	// +checklocks:mu
	count int
	// came is closed and replaced when a free has happened.
	// +checklocks:mu
	came chan struct{}
}

func (l *late) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
}

func (l *late) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if l.came != nil {
		close(l.came)
		l.came = nil
	}
}

// expect counts one free until the first call of end, or until within has passed.
func (l *late) expect(within time.Duration) (end func()) {
	l.begin()
	once := sync.OnceFunc(l.end)
	timer := time.AfterFunc(within, once)
	return func() {
		timer.Stop()
		once()
	}
}

// next returns a channel that is closed with the next free; nil when none is expected.
func (l *late) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		return nil
	}
	if l.came == nil {
		l.came = make(chan struct{})
	}
	return l.came
}
