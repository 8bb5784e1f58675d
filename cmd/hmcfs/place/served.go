package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
)

// servedMount returns a served directory as a Mount.
func servedMount(s client.Served) Mount {
	return Mount{MountPoint: s.Dir, Type: servedType, options: fmt.Sprintf("user_id=%d", s.Owner)}
}

// ServedAt reports whether a path is a served directory, whose daemon may be dead.
func ServedAt(path string) (Mount, bool) {
	s, found := client.ServedAt(path)
	return servedMount(s), found
}

// Served returns the served directories of this user's living daemons. Those of other users can
// only be named.
func (h Host) Served() []Mount {
	var out []Mount
	seen := map[string]bool{}
	for _, base := range h.basesOf(h.UID) {
		if believable(base, h.UID) != nil {
			continue
		}
		locks, _ := filepath.Glob(filepath.Join(base, "*", "lock")) // the pattern is right
		for _, lock := range locks {
			holder, living, err := ReadHolder(lock)
			if err != nil || !living || !holder.Served || seen[holder.MountPoint] {
				continue
			}
			if m, found := ServedAt(holder.MountPoint); found {
				seen[holder.MountPoint] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// MakeServed creates a directory to serve. It may exist. A mount there, which may not answer, is
// not accessed.
func MakeServed(path string) error {
	if _, found, err := MountAt(path); err != nil || found {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the directory to serve: %w", err)
	}
	return nil
}

// CheckServed returns an error unless a directory belongs to a user and only that user may write
// to it: others could make it lead to their own daemon.
func CheckServed(path string, uid int) error {
	st, err := directoryOf(path, uid)
	switch {
	case err != nil:
		return fmt.Errorf("directory to serve: %w", err)
	case st.Mode()&writable != 0:
		return fmt.Errorf("directory to serve: other users may write to %s; revoke that permission (chmod go-w %s)", path, path)
	}
	return nil
}

// The files in the control directory of a served directory; the second one becomes the first.
const (
	configName    = "config"
	newConfigName = "config.new"
)

// Announce writes the file by which others find the daemon of a served directory; open lets
// other users read it.
func Announce(dir string, config []byte, open bool) error {
	control := filepath.Join(dir, client.ControlDir)
	dirMode, mode := private, fs.FileMode(0o600)
	if open {
		dirMode, mode = 0o755, 0o644
	}
	err := os.Mkdir(control, dirMode)
	if err == nil {
		// A reader sees the whole file or none.
		err = os.WriteFile(filepath.Join(control, newConfigName), config, mode)
	}
	if err == nil {
		err = os.Rename(filepath.Join(control, newConfigName), filepath.Join(control, configName))
	}
	if err != nil {
		CleanServed(dir)
		return fmt.Errorf("announce the daemon in %s: %w", dir, err)
	}
	return nil
}

// CleanServed removes what a daemon leaves in a served directory. The directory itself stays.
func CleanServed(dir string) {
	if !isServedControl(dir) {
		return
	}
	control := filepath.Join(dir, client.ControlDir)
	for _, name := range []string{configName, newConfigName, "."} {
		_ = os.Remove(filepath.Join(control, name))
	}
}

// isServedControl reports whether the control directory has nothing but what Announce creates
// for this directory.
func isServedControl(dir string) bool {
	control := filepath.Join(dir, client.ControlDir)
	if st, err := os.Lstat(control); err != nil || !st.IsDir() {
		return false
	}
	entries, err := os.ReadDir(control)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		_, ours := client.ServedAt(dir)
		return e.Name() != newConfigName && (e.Name() != configName || !ours)
	})
}

// ClaimServed reserves a directory for one daemon until release is called: two daemons with
// different runtime directories would not find each other.
func ClaimServed(dir string) (release func(), err error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("directory to serve: %w", err)
	}
	if err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return func() { _ = d.Close() }, nil
	}
	_ = d.Close() // nothing was written
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s is served by another daemon of hmcfs; end it first: hmcfs umount %s", dir, dir)
	}
	return nil, fmt.Errorf("lock %s: %w", dir, err)
}
