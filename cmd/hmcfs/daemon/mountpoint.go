package daemon

import (
	"fmt"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

// CheckMountPoint says whether a mount could begin at the path, and changes
// nothing. What may be a dead mount, or one that is about to end, is left for
// the daemon to find out.
func CheckMountPoint(path string) error {
	m, found, err := place.MountAt(path)
	switch {
	case err != nil:
		return err
	case !found:
		return place.CheckMountPoint(path)
	case !m.IsHMCFS():
		return foreign(m)
	}
	return nil
}

func foreign(m place.Mount) error {
	return fmt.Errorf("mount point %s is in use: a %s file system is mounted there; unmount it or give another directory", m.MountPoint, m.Type)
}

// clearMountPoint makes sure that a mount may begin at the path. A mount of
// hmcfs whose daemon is dead is taken away first; anything else that is
// mounted there is refused.
func clearMountPoint(path string) error {
	for {
		m, found, err := place.MountAt(path)
		switch {
		case err != nil:
			return err
		case !found:
			return place.CheckMountPoint(path)
		case !m.IsHMCFS():
			return foreign(m)
		case !place.IsDead(path):
			return fmt.Errorf("%s is mounted already with hmcfs; unmount it first: hmcfs umount %s", path, path)
		}
		if err := place.Detach(path, true); err != nil {
			return fmt.Errorf("take away the mount that a dead daemon left: %w", err)
		}
	}
}
