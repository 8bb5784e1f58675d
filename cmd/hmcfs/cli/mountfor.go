package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/client"
)

// addMountFlag adds --mount to a command. All have the same text, and find the mount by mountFor.
func addMountFlag(cmd *cobra.Command, mount *string) {
	cmd.Flags().StringVar(mount, "mount", "", "Mount point, or directory of hmcfs serve. Default: that of the paths, $HMCFS_MOUNT, that of the current directory, or the only one.")
}

// mountFor returns the mount, or the served directory, on which a command works: the named one, that of
// the paths, of $HMCFS_MOUNT, of the current directory, or the only one. Paths outside of mounts do not
// matter, nor do private mounts of other users beside one that this user may access.
func (a *app) mountFor(named string, paths ...string) (place.Mount, error) {
	if named != "" {
		return a.findMount(named)
	}
	m, found, err := mountOfPaths(paths)
	if found || err != nil {
		return m, err
	}
	if named = a.Getenv("HMCFS_MOUNT"); named != "" {
		if m, err = a.findMount(named); err != nil {
			err = fmt.Errorf("HMCFS_MOUNT: %w", err)
		}
		return m, err
	}
	if m, found = mountOfPath("."); found {
		return m, nil
	}
	all, err := a.mounts()
	if own := slices.DeleteFunc(slices.Clone(all), func(m place.Mount) bool { return !m.Admits(a.host().UID) }); len(own) > 0 {
		all = own
	}
	switch {
	case err != nil:
		return place.Mount{}, err
	case len(all) == 0:
		return place.Mount{}, notMounted("there is no hmcfs mount; mount one first: hmcfs mount MOUNTPOINT, or do without: hmcfs serve DIR")
	case len(all) == 1:
		return all[0], nil
	}
	return place.Mount{}, usage(&severalMountsError{all})
}

// severalMountsError means that a command needs one mount, and there are several.
type severalMountsError struct{ mounts []place.Mount }

// Error lists the mounts.
func (e *severalMountsError) Error() string {
	return fmt.Sprintf("there are several hmcfs mounts: %s; name one of them, or set HMCFS_MOUNT", pointsOf(e.mounts))
}

// mountOfPaths returns the mount that contains the paths that are on one.
func mountOfPaths(paths []string) (found place.Mount, on bool, err error) {
	for _, path := range paths {
		m, ok := mountOfPath(path)
		switch {
		case !ok:
		case !on:
			found, on = m, true
		case found.MountPoint != m.MountPoint:
			return found, false, usage(fmt.Errorf("%s is on %s, but other paths are on %s; a call takes paths of one mount",
				path, m.MountPoint, found.MountPoint))
		}
	}
	return found, on, nil
}

// mounts returns all hmcfs mounts, and the served directories of this user, by path.
func (a *app) mounts() ([]place.Mount, error) {
	table, err := place.Mounts()
	if err != nil {
		return nil, err
	}
	var out []place.Mount
	for _, m := range slices.Concat(table, a.host().Served()) {
		if (m.IsHMCFS() || m.IsServed()) && !slices.ContainsFunc(out, func(o place.Mount) bool { return o.MountPoint == m.MountPoint }) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b place.Mount) int { return strings.Compare(a.MountPoint, b.MountPoint) })
	return out, nil
}

func pointsOf(all []place.Mount) string {
	return strings.Join(mapped(all, func(m place.Mount) string { return m.MountPoint }), ", ")
}

// findMount returns the hmcfs mount, or the served directory, that contains a path.
func (a *app) findMount(path string) (place.Mount, error) {
	abs, err := place.Absolute(path)
	if err != nil {
		return place.Mount{}, err
	}
	m, found, err := place.MountOf(abs)
	if err != nil {
		return place.Mount{}, err
	}
	if !found {
		return place.Mount{}, notMounted("%s is not on an hmcfs mount; %s", path, a.wayOut(abs, path))
	}
	return m, nil
}

// wayOut returns the remedy for a path that is not on a mount.
func (a *app) wayOut(abs, path string) string {
	if err := client.Untrusted(abs); err != nil {
		return err.Error()
	}
	if _, err := os.Stat(abs); err != nil {
		if all, merr := a.mounts(); merr == nil && len(all) > 0 {
			return "no such file or directory; hmcfs is mounted on: " + pointsOf(all)
		}
	}
	return "mount it first: hmcfs mount " + path + ", or do without a mount: hmcfs serve " + path
}
