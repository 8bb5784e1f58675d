package badgerkv

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pidFile holds the number of the process that has the directory open. It has
// the name that Badger's own lock gives it; the lock itself is on the
// directory, and goes with the process whatever its end.
const pidFile = "LOCK"

// lockDir takes the same lock that Badger would, and changes nothing. It is taken
// here because Badger does not tell apart why it could not be taken.
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

// signLock writes which process has the lock.
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

// unlockDir releases the lock. The pid file goes first, while it is still
// certain to be ours.
func unlockDir(f *os.File) error {
	return errors.Join(os.Remove(filepath.Join(f.Name(), pidFile)), f.Close())
}
