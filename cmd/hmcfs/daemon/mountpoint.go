package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/client"
)

// CheckMountPoint returns an error unless a mount could begin at the path; it changes
// nothing. It accepts what may be a dead mount, or one that is being unmounted: the daemon
// finds that out. A daemon without a mount creates a missing directory.
func CheckMountPoint(path string, noMount bool) error {
	if _, found, err := place.MountAt(path); noMount && err == nil && !found {
		if _, err = os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	_, err := occupied(path)
	return err
}

// occupied reports whether hmcfs is mounted at the path. Anything else that prevents a
// mount is an error.
func occupied(path string) (bool, error) {
	m, found, err := place.MountAt(path)
	switch {
	case err != nil:
		return false, err
	case !found:
		return false, place.CheckMountPoint(path)
	case !m.IsHMCFS():
		return false, fmt.Errorf("mount point %s is in use: a %s file system is mounted there; unmount it or use another directory", path, m.Type)
	}
	return true, nil
}

// clearMountPoint makes sure that a mount can begin at the path. An hmcfs mount whose
// daemon is dead is removed first; anything else mounted there is an error.
//
// release ends the claim on the directory, by which a file there that names a socket is one that a
// dead daemon without a mount left.
func clearMountPoint(path string, noMount bool, uid int) (release func(), err error) {
	for {
		ours, err := occupied(path)
		switch {
		case err == nil && !ours:
			return claim(path, noMount, uid)
		case err != nil:
			return nil, err
		case !place.IsDead(path):
			return nil, fmt.Errorf("%s is already mounted with hmcfs; unmount it first: hmcfs umount %s", path, path)
		}
		if err := place.Detach(path, true); err != nil {
			return nil, fmt.Errorf("remove the mount that a dead daemon left: %w", err)
		}
	}
}

// claim reserves a directory in which nothing is mounted, and removes what a dead daemon without a
// mount left there. For a mount, one that no such daemon has used needs no claim.
func claim(path string, noMount bool, uid int) (release func(), err error) {
	if _, none := os.Lstat(filepath.Join(path, client.ControlDir)); none != nil && !noMount {
		return func() {}, nil
	}
	// Others must not be able to exchange what is about to be removed.
	if err = place.CheckServed(path, uid); err != nil {
		return nil, err
	}
	if release, err = place.ClaimServed(path); err == nil {
		place.CleanServed(path)
	}
	return release, err
}
