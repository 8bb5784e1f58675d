package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// The directories of a mount that do not belong to a device.
const (
	keysDir    = "keys"
	publishDir = "publish"
	nodesDir   = "nodes"
)

// isOwnDir reports whether a directory in the mount's root does not belong to a device.
func isOwnDir(name string) bool {
	return name == keysDir || name == publishDir || name == nodesDir || strings.HasPrefix(name, ".")
}

// needsMount returns an error for a served directory, in whose files a command on paths of the
// kernel can't work.
func needsMount(m place.Mount, verb, instead string) error {
	if !m.IsServed() {
		return nil
	}
	return usage(fmt.Errorf("hmcfs %s reads and writes files of a mount, and the daemon of %s has none; %s", verb, m.MountPoint, instead))
}

// mountOfPath returns the mount that contains a path, which need not exist yet.
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

func isOn(m place.Mount, path string) bool {
	at, ok := mountOfPath(path)
	return ok && at.MountPoint == m.MountPoint
}

// statIn looks up a name in keys/ or publish/ of a mount, with os.Stat or os.Lstat. An
// empty mount point, as there is while a new daemon replaces one that died, says nothing
// about the name.
//
// Errors: fs.ErrNotExist, only from the mount; hetero.ErrDisconnected.
func statIn(m place.Mount, dir, name string, stat func(string) (fs.FileInfo, error)) (fs.FileInfo, error) {
	path := filepath.Join(m.MountPoint, dir)
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", m.MountPoint, hetero.ErrDisconnected)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it only names the directory
	info, err := stat(fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name))
	if failed, is := errors.AsType[*fs.PathError](err); is {
		failed.Path = filepath.Join(path, name)
	}
	return info, err
}

// deviceDir returns the directory of a device, which must exist.
func deviceDir(m place.Mount, text string) (string, error) {
	device := string(devices.NameOf(text))
	dir := filepath.Join(m.MountPoint, device)
	own := isOwnDir(device) || strings.Contains(device, "/")
	if st, err := os.Stat(dir); !own && err == nil && st.IsDir() {
		return dir, nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return "", noDevice(m, text, deviceNames(m.MountPoint))
}

func noDevice(m place.Mount, text string, names []string) error {
	return usage(fmt.Errorf("--device %s: %s has no such device; it has %s", text, m.MountPoint, strings.Join(names, ", ")))
}

// deviceNames returns the names of the device directories in a mount; nil if it does not
// answer.
func deviceNames(mountPoint string) []string {
	entries, err := os.ReadDir(mountPoint)
	if err != nil {
		return nil
	}
	return devicesIn(entries)
}

// devicesIn returns the names of those of the directories in the root that belong to a device.
func devicesIn(entries []fs.DirEntry) []string {
	var names []string
	for _, e := range entries {
		if e.IsDir() && !isOwnDir(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// unasked reports whether a filesystem error means that a node which may have the key does
// not answer.
func unasked(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ETIMEDOUT)
}

// reason replaces err by the daemon's error for a key, or a publication, that could not be
// looked up: the kernel passes on only an errno, which does not say which node does not
// answer.
func (a keyVerbs) reason(ctx context.Context, m place.Mount, key string, published bool, err error) error {
	if !unasked(err) {
		return err
	}
	c, failure := a.openKeys(ctx, m)
	if failure != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it holds nothing
	told, failure := c.GetMetaInfo(ctx, []string{key}, published)
	if failure == nil && len(told) == 1 {
		failure = told[0].Err
	}
	if errors.Is(failure, hetero.ErrDisconnected) {
		return failure
	}
	return err
}

// The ways to do without the commands on paths of a mount.
const (
	insteadOfD2H = "copy the file into host memory with hmcfs cp hmc:DEVICE/PATH hmc:host/NAME, and set its key with hmcfs mset KEY=hmc:host/NAME"
	insteadOfH2D = "copy the bytes of the key with hmcfs mget KEY=hmc:DEVICE/PATH"
)
