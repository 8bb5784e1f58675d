package badgerkv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pidFile contains the ID of the process that has the directory open. It has the name that
// Badger's own lock uses; the lock itself is on the directory, and is released when the
// process ends, however it ends.
const pidFile = "LOCK"

// lockDir acquires the same lock that Badger would, and changes nothing. It is acquired
// here because Badger does not distinguish the reasons for a failure.
//
// Errors: ErrLocked (a *LockedError).
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = &LockedError{Dir: dir, PID: readPID(filepath.Join(dir, pidFile))}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// signLock writes the ID of this process to the pid file.
func signLock(f *os.File) error {
	return os.WriteFile(filepath.Join(f.Name(), pidFile), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
}

func readPID(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

// unlockDir releases the lock. The pid file is removed first, while it certainly still
// belongs to this process.
func unlockDir(f *os.File) error {
	return errors.Join(os.Remove(filepath.Join(f.Name(), pidFile)), f.Close())
}

// heldPath returns a path of the open directory itself, even if another has its name now.
func heldPath(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) }
