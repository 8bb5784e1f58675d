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
	// soon bounds how long memory of an inode without names and handles is
	// expected back. The kernel forgets such an inode before unlink returns, unless
	// a process refers to it, and the daemon hears of that a moment later, on a busy
	// machine more than 100 ms later. A caller that finds the device full waits for
	// it.
	soon = 2 * time.Second
	// statfsWait bounds how long an answer about free memory waits for it.
	statfsWait = 100 * time.Millisecond
)

// tier is one device as the store uses it: files of the host tier, or an
// arena in device memory, which starts empty with every epoch.
type Tier struct {
	Dev   devices.Device
	Name  metadata.DeviceName
	Root  metadata.Ino
	Files devices.Files // nil for device memory
	arena *arena.Arena  // nil for the host tier
	late  late          // frees that wait for readers
	// leaving counts orphans that the kernel is expected to forget soon.
	leaving late
	paces   paces
}

func NewTier(dev devices.Device, o arena.Options) (*Tier, error) {
	t := &Tier{Dev: dev, Name: metadata.DeviceName(dev.Info().Name)}
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

// epoch is the device's present incarnation as the records keep it.
func (t *Tier) Epoch() metadata.Epoch { return metadata.Epoch(t.Dev.Epoch()) }

// gone is an incarnation before the present one: that of content which is lost.
func (t *Tier) PastEpoch() metadata.Epoch { return t.Epoch() - 1 }

// usage returns the numbers for df: the files' memory on the host tier, leased pages on
// all others. Pages that the arena holds and nobody leases are free.
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

// settle waits for the memory of orphans that is expected, for at most limit.
func (t *Tier) settle(limit time.Duration) {
	came := t.leaving.next()
	if came == nil {
		return
	}
	enough := time.NewTimer(limit)
	defer enough.Stop()
	for ; came != nil; came = t.leaving.next() {
		select {
		case <-came:
		case <-enough.C:
			return
		}
	}
}

// makeRoom is settle where less than n, or than an eighth of all, is free. On
// the host tier the kernel's own file system says that it is full, also to
// programs that write to it by passthrough.
func (t *Tier) MakeRoom(n devices.Size) {
	if t.leaving.next() == nil {
		return
	}
	if u, err := t.Dev.Usage(); err != nil || u.Free < max(n, u.Total/8) {
		t.settle(soon)
	}
}

// expectMemory has callers that find the device full wait a while for the memory of an
// orphan, until the first call of end.
func (t *Tier) ExpectMemory() (end func()) { return t.leaving.expect(soon) }

// held is the memory, in bytes, that the arena has taken from the device.
func (t *Tier) Held() devices.Size {
	if t.arena == nil {
		return 0
	}
	return t.arena.Usage().Held
}

// trim gives memory back to the device that no object has used for a while.
func (t *Tier) Trim() error {
	if t.arena == nil {
		return nil
	}
	return t.arena.Trim()
}

func (t *Tier) Close() error {
	if t.arena == nil {
		return nil
	}
	return t.arena.Close()
}

// errFound ends a search.
var errFound = errors.New("found")

// hasFile says whether a file is one of the tier's. All of those are on one
// file system, so the first that is there tells whether to look at the others;
// a tier that is not on one of its own is not alone there. One that can't be
// searched has it.
func (t *Tier) HasFile(file owner.FileID) bool {
	if t.Files == nil {
		return false
	}
	ours := false
	err := t.Files.Each(func(id uint64) error {
		st, err := t.Files.Stat(id)
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile; the next one tells
		}
		if ours = st.Dev == file.Dev && st.Ino == file.Ino; ours || st.Dev != file.Dev {
			return errFound
		}
		return nil
	})
	return ours || err != nil && !errors.Is(err, errFound)
}

// late counts frees that are to come, so that a write that finds the device
// full waits for them too, instead of failing while memory that has no name any
// more is on its way back.
type late struct {
	mu sync.Mutex
	// +checklocks:mu
	count int
	// came is closed, and made anew, when a free has happened.
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

// expect is begin; the end is the first call of the result, or comes after a while.
func (l *late) expect(within time.Duration) (end func()) {
	l.begin()
	once := sync.OnceFunc(l.end)
	timer := time.AfterFunc(within, once)
	return func() {
		timer.Stop()
		once()
	}
}

// next is closed with the next late free; nil when none is on its way.
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
