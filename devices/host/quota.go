package host

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// openQuota opens or creates the directory of mode quota.
func openQuota(p place, size devices.Size) (dev *Device, err error) {
	if p.quotaDir == "" {
		return nil, p.noQuota
	}
	if err = ownDir(p.quotaDir); err != nil {
		return nil, err
	}
	s, err := openStore(p.quotaDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	limit := &quotaLimit{store: s}
	if err = limit.recount(); err != nil {
		return nil, err
	}
	if limit.total, err = limit.sizeFor(size); err != nil {
		return nil, err
	}
	return newDevice(s, ModeQuota, "", limit, limit.total), nil
}

// ownDir creates a directory that only this user can access. Shared memory is
// world-writable: an existing directory of another user is rejected.
func ownDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("host tier: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("host tier %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("host tier %s: not a directory of user %d; have it removed by its owner or by root, or give another --runtime-dir", path, os.Geteuid())
	}
	if st.Mode&0o777 != 0o700 {
		// Created under a umask, or its permissions were changed since.
		return os.Chmod(path, 0o700)
	}
	return nil
}

// quotaLimit counts the tier's bytes itself.
type quotaLimit struct {
	store *store
	total devices.Size

	mu sync.Mutex
	// allocated is the exact number of bytes in allocations.
	// +checklocks:mu
	allocated devices.Size
	// filed is the size, in bytes, of the files' blocks at the last count.
	// +checklocks:mu
	filed devices.Size
	// reserved is the number of bytes granted to files since.
	// +checklocks:mu
	reserved devices.Size
	// files is the number of files, excluding those that were set aside.
	// +checklocks:mu
	files uint64
}

// account selects the kind of use that bytes are counted for.
type account int

const (
	forAllocations account = iota
	forFiles
)

// sizeFor checks the requested size, or chooses a default, against the space of the
// underlying file system.
func (l *quotaLimit) sizeFor(size devices.Size) (devices.Size, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(l.store.root.Fd()), &st); err != nil {
		return 0, fmt.Errorf("host tier %s: %w", l.store.path, err)
	}
	l.mu.Lock()
	filed := l.filed
	l.mu.Unlock()
	block := devices.Size(st.Bsize)
	room := devices.Size(st.Bavail)*block + filed
	switch {
	case size != 0 && size < filed:
		return 0, tooSmall(l.store.path, size, filed)
	case size != 0 && st.Blocks > 0 && size > room:
		return 0, fmt.Errorf("host tier %s: size=%d is more than the %d bytes (%v) available in its file system",
			l.store.path, uint64(size), uint64(room), room)
	case size != 0:
		return size, nil
	}
	size, err := defaultSize()
	if st.Blocks > 0 {
		size = min(size, room)
	}
	return max(size, filed), err
}

// recount measures the files. Bytes reserved while it runs stay reserved.
func (l *quotaLimit) recount() error {
	l.mu.Lock()
	seen := l.reserved
	l.mu.Unlock()
	var sum devices.Size
	var count uint64
	err := eachFile(l.store, func(name string, _ uint64) error {
		sum += blocksOf(l.store, name)
		count++
		return nil
	})
	if err != nil {
		return err
	}
	aside, err := asideOf(l.store.root, l.store.path)
	if err != nil {
		return err
	}
	for _, f := range aside {
		sum += f.Used
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.filed, l.files = sum, count
	l.reserved -= min(seen, l.reserved)
	return nil
}

// blocksOf returns a file's memory in bytes; 0 if it does not exist.
func blocksOf(s *store, name string) devices.Size {
	var st unix.Stat_t
	if err := unix.Fstatat(int(s.files.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0
	}
	return devices.Size(st.Blocks) * 512
}

func (l *quotaLimit) usage() (devices.Usage, error) {
	if err := l.recount(); err != nil {
		return devices.Usage{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	used := min(l.allocated+l.filed, l.total)
	return devices.Usage{Total: l.total, Used: used, Free: l.total - used}, nil
}

func (l *quotaLimit) take(n devices.Size) error {
	return l.count(n, forAllocations)
}

func (l *quotaLimit) reserve(n devices.Size) error {
	return l.count(n, forFiles)
}

// count adds n to one of the accounts if the sum stays within the limit, if necessary after
// recounting the files.
func (l *quotaLimit) count(n devices.Size, to account) error {
	if l.tryCount(n, to) {
		return nil
	}
	if err := l.recount(); err != nil {
		return err
	}
	if l.tryCount(n, to) {
		return nil
	}
	return &devices.OutOfMemoryError{Device: devices.Name(Family), Asked: n, Free: l.free()}
}

func (l *quotaLimit) tryCount(n devices.Size, to account) bool {
	free := l.free()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > free || l.sum() > l.total-n {
		return false
	}
	switch to {
	case forAllocations:
		l.allocated += n
	case forFiles:
		l.reserved += n
	}
	return true
}

// +checklocks:l.mu
func (l *quotaLimit) sum() devices.Size { return l.allocated + l.filed + l.reserved }

func (l *quotaLimit) free() devices.Size {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total - min(l.sum(), l.total)
}

func (l *quotaLimit) give(n devices.Size) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allocated -= n
}

// removed subtracts a removed file.
func (l *quotaLimit) removed(n devices.Size) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.filed -= min(n, l.filed)
}

// admit counts a file before it is created, so that concurrent calls stay within the limit.
func (l *quotaLimit) admit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files >= filesFor(l.total) {
		return tooMany(l.store.path)
	}
	l.files++
	return nil
}

func (l *quotaLimit) dismiss() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files -= min(1, l.files)
}

func (l *quotaLimit) destroy() error {
	if err := os.RemoveAll(l.store.path); err != nil {
		return fmt.Errorf("remove the host tier: %w", err)
	}
	return nil
}
