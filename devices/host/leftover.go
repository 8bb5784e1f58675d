package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Left is an existing tier that was not opened by this process.
type Left struct {
	Mode Mode
	Path string
	// InUse reports whether a living process has it open.
	InUse bool
}

// Leftover finds the existing tiers for the options. Those that are not in use were left by
// a dead process, or kept by a clean unmount for the next Open.
func Leftover(o Options) ([]Left, error) {
	if _, err := os.Stat(o.Dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	p, err := NewDriver(o).place()
	if err != nil {
		return nil, err
	}
	var left []Left
	if p.mounted {
		left = append(left, Left{Mode: ModeTmpfs, Path: p.mountDir})
	}
	if p.quotaExists() {
		left = append(left, Left{Mode: ModeQuota, Path: p.quotaDir})
	}
	for i, l := range left {
		if left[i].InUse, err = inUse(l.Path); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// Remove frees the memory of the tier with all its files. It refuses a tier that is in use.
func (l Left) Remove() error {
	busy, err := inUse(l.Path)
	switch {
	case err != nil:
		return err
	case busy:
		return fmt.Errorf("host tier %s: %w", l.Path, errInUse)
	case l.Mode == ModeTmpfs:
		return destroyTmpfs(l.Path)
	}
	return os.RemoveAll(l.Path)
}

// Owner returns the owner that has claimed the tier; empty if none has.
func (l Left) Owner() (string, error) {
	root, err := openTier(l.Path)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // only read
	return ownerOf(root, l.Path)
}

// openTier opens the directory of a tier that this process does not use.
func openTier(path string) (*os.File, error) {
	root, err := openDir(unix.AT_FDCWD, path)
	if err != nil {
		return nil, fmt.Errorf("host tier: %w", err)
	}
	return root, nil
}

// inUse reports whether the tier is locked.
func inUse(path string) (bool, error) {
	dir, err := openTier(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }()
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
