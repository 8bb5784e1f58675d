package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

// The directories of a mount that are no device's.
const (
	keysDir    = "keys"
	publishDir = "publish"
	nodesDir   = "nodes"
)

// isOwnDir says whether a directory of the mount's root is the mount's own.
func isOwnDir(name string) bool {
	return name == keysDir || name == publishDir || name == nodesDir || strings.HasPrefix(name, ".")
}

// keyMount is the mount whose keys are meant: the one that is named, that of
// the paths, or the only one.
func keyMount(named string, pairs []keyPath) (place.Mount, error) {
	if named != "" {
		return findMount(named)
	}
	var found place.Mount
	for _, p := range pairs {
		m, ok := mountOfPath(p.path)
		switch {
		case !ok:
		case found.MountPoint == "":
			found = m
		case found.MountPoint != m.MountPoint:
			return found, usage(fmt.Errorf("%s is on %s, others are on %s; name paths of one mount in one call",
				p.path, m.MountPoint, found.MountPoint))
		}
	}
	if found.MountPoint != "" {
		return found, nil
	}
	return onlyMount("say which: --mount MOUNTPOINT")
}

// mountOfPath is the mount that a path lies on, which need not be there yet.
func mountOfPath(path string) (place.Mount, bool) {
	if path == "" || path == standardStream {
		return place.Mount{}, false
	}
	abs, err := place.Absolute(path)
	if err != nil {
		return place.Mount{}, false
	}
	m, found, err := place.MountOf(abs)
	return m, found && err == nil
}

// isOn says whether a path lies on a mount.
func isOn(m place.Mount, path string) bool {
	at, ok := mountOfPath(path)
	return ok && at.MountPoint == m.MountPoint
}

// onlyMount is the mount of a machine that has one. With several, which tells
// how to name one.
func onlyMount(which string) (place.Mount, error) {
	all, err := place.Mounts()
	if err != nil {
		return place.Mount{}, err
	}
	var points []string
	var last place.Mount
	for _, m := range all {
		if m.IsHMCFS() && !slices.Contains(points, m.MountPoint) {
			points = append(points, m.MountPoint)
			last = m
		}
	}
	switch len(points) {
	case 0:
		return place.Mount{}, notMounted("nothing is mounted; mount it first: hmcfs mount MOUNTPOINT")
	case 1:
		return last, nil
	}
	return place.Mount{}, usage(fmt.Errorf("several are mounted: %s; %s", strings.Join(points, ", "), which))
}

// deviceDir is the directory of a device, which is there.
func deviceDir(m place.Mount, device string) (string, error) {
	dir := filepath.Join(m.MountPoint, device)
	own := isOwnDir(device) || strings.Contains(device, "/")
	if st, err := os.Stat(dir); !own && err == nil && st.IsDir() {
		return dir, nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return "", usage(fmt.Errorf("--device %s: %s has no such device; it has %s",
		device, m.MountPoint, strings.Join(deviceNames(m.MountPoint), ", ")))
}

// deviceNames are the directories of devices in a mount; none where it does
// not answer.
func deviceNames(mountPoint string) []string {
	entries, err := os.ReadDir(mountPoint)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !isOwnDir(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}
