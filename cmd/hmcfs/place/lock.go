package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

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

// Acquire locks the file, or fails with a *HeldError: at once if another process has it, and within
// noteLimit if the file does not say which one, as while a reader looks at it or a new holder writes its note.
func Acquire(path string, h Holder) (*Lock, error) {
	for until := time.Now().Add(noteLimit); ; time.Sleep(noteInterval) {
		l, err := acquire(path, h)
		held, is := errors.AsType[*HeldError](err)
		if !is || held.Holder.runs() || time.Now().After(until) {
			return l, err
		}
	}
}

// acquire locks the file, or fails at once.
func acquire(path string, h Holder) (*Lock, error) {
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
		return acquire(path, h)
	}
	if err := l.write(h); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// runs reports whether the process is known and has not ended.
func (h Holder) runs() bool { return h.PID != 0 && (h.PID == os.Getpid() || !hasEnded(h.PID)) }

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
	err = look(path, func(f *os.File, held bool) {
		if living = held; living {
			h = readNewHolder(f)
		} else {
			h = readHolder(f)
		}
	})
	return h, living, err
}

// isHeld reports whether a process holds a lock file.
func isHeld(path string) (living bool) {
	_ = look(path, func(_ *os.File, held bool) { living = held }) // a file that can't be read is not held
	return living
}

// look calls a function with a lock file, and whether a process holds it.
func look(path string, fn func(f *os.File, held bool)) error {
	f, err := openLock(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("read lock: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("read lock %s: %w", path, err)
	}
	fn(f, err != nil)
	return nil
}

// noteLimit bounds the wait for a holder's note, and noteInterval is the time between two looks at it.
const (
	noteLimit    = 200 * time.Millisecond
	noteInterval = time.Millisecond
)

// readNewHolder returns the holder of a file that is locked. Between its lock and its note, the file
// has the note of the holder before it, which has ended. In another PID namespace every process seems to
// have ended, so that it returns what it reads in the end.
func readNewHolder(f *os.File) Holder {
	for until := time.Now().Add(noteLimit); ; time.Sleep(noteInterval) {
		if h := readHolder(f); h.runs() || time.Now().After(until) {
			return h
		}
	}
}

func readHolder(f *os.File) Holder {
	var h Holder
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<16))
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
