package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Holder describes the process that holds a lock file.
type Holder struct {
	PID        int    `json:"pid"`
	MountPoint string `json:"mount_point"`
	StateDir   string `json:"state_dir,omitempty"`
	RuntimeDir string `json:"runtime_dir,omitempty"`
	// Served is set for a daemon without a mount.
	Served bool `json:"served,omitempty"`
}

// HeldError is the error for a lock that a living process holds.
type HeldError struct {
	Path   string
	Holder Holder
}

// Error names the file and the process.
func (e *HeldError) Error() string {
	if e.Holder.PID == 0 {
		return fmt.Sprintf("%s is locked by another process", e.Path)
	}
	return fmt.Sprintf("%s is locked by process %d, which serves %s", e.Path, e.Holder.PID, e.Holder.MountPoint)
}

// Lock is a lock file that this process holds. The kernel releases it when the process
// dies, however that happens.
type Lock struct {
	file *os.File
	path string
}

// Acquire locks the file, or fails at once with a *HeldError.
func Acquire(path string, h Holder) (*Lock, error) {
	f, err := openLock(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{Path: path, Holder: readHolder(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &Lock{file: f, path: path}
	if !l.isStillAt(path) {
		_ = f.Close()
		return Acquire(path, h)
	}
	if err := l.write(h); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// openLock opens a lock file; it refuses file types on which an open could block.
func openLock(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, f.Close(), fmt.Errorf("%s is not a regular file", path))
	}
	return f, nil
}

// isStillAt reports whether the locked file still has the name: its last holder may have
// removed it in between.
func (l *Lock) isStillAt(path string) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	held, err := l.file.Stat()
	return err == nil && os.SameFile(named, held)
}

func (l *Lock) write(h Holder) error {
	data, err := json.Marshal(h)
	if err == nil {
		err = l.file.Truncate(0)
	}
	if err == nil {
		_, err = l.file.WriteAt(append(data, '\n'), 0)
	}
	if err != nil {
		return fmt.Errorf("write lock %s: %w", l.path, err)
	}
	return nil
}

// Release unlocks the file and leaves it in place, with its last holder's note.
func (l *Lock) Release() { _ = l.file.Close() }

// Remove removes the file and then unlocks it, in this order, so that no process holds a
// lock on a file without a name.
func (l *Lock) Remove() {
	_ = os.Remove(l.path)
	_ = l.file.Close()
}

// ReadHolder returns the holder of a lock file; if living is false nobody holds it, and h
// is the last holder.
func ReadHolder(path string) (h Holder, living bool, err error) {
	f, err := openLock(path, os.O_RDONLY)
	if err != nil {
		return Holder{}, false, fmt.Errorf("read lock: %w", err)
	}
	defer func() { _ = f.Close() }()
	h = readHolder(f)
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return h, false, fmt.Errorf("read lock %s: %w", path, err)
	}
	return h, err != nil, nil
}

func readHolder(f *os.File) Holder {
	var h Holder
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<16))
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
