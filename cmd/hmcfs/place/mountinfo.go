package place

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/objects/client"
)

// FSType is the type of an hmcfs mount in the mount table.
const FSType = "fuse.hmcfs"

// Mount is one line of the mount table, or a served directory.
type Mount struct {
	// Dev is "major:minor", as stat's st_dev.
	Dev        string
	MountPoint string
	Type       string
	// options are those of the filesystem, separated by commas.
	options string
}

// servedType is the type of a Mount that is a served directory, which is no mount.
const servedType = "hmcfs serve"

// IsServed reports whether it is the directory of a daemon without a mount.
func (m Mount) IsServed() bool { return m.Type == servedType }

// IsHMCFS reports whether the mount is an hmcfs mount.
func (m Mount) IsHMCFS() bool { return m.Type == FSType }

// HasDevice reports whether st_dev of the files of the mount is a device number.
func (m Mount) HasDevice(dev uint64) bool {
	return m.Dev == fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
}

// Owner returns the user whose daemon serves a FUSE mount or a served directory; -1 for other
// mounts.
func (m Mount) Owner() int {
	for o := range strings.SplitSeq(m.options, ",") {
		if id, ok := strings.CutPrefix(o, "user_id="); ok {
			if n, err := strconv.Atoi(id); err == nil {
				return n
			}
		}
	}
	return -1
}

// Admits reports whether a user may access the files: those of a private mount are refused to
// everyone else, even to root.
func (m Mount) Admits(uid int) bool {
	return m.Owner() == uid || slices.Contains(strings.Split(m.options, ","), "allow_other")
}

// Mounts reads the mount table of this process.
func Mounts() ([]Mount, error) { return mountsOf("/proc/self") }

func mountsOf(dir string) ([]Mount, error) {
	f, err := os.Open(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parseMounts(f)
}

func parseMounts(r io.Reader) ([]Mount, error) {
	all, err := host.Mounts(r)
	if err != nil {
		return nil, err
	}
	out := make([]Mount, len(all))
	for i, m := range all {
		out[i] = Mount{Dev: fmt.Sprintf("%d:%d", m.Major, m.Minor), MountPoint: m.Mountpoint, Type: m.FSType, options: m.VFSOptions}
	}
	return out, nil
}

// MountsAt returns the mounts exactly at a path, the topmost last.
func MountsAt(path string) ([]Mount, error) {
	all, err := Mounts()
	return slices.DeleteFunc(all, func(m Mount) bool { return m.MountPoint != path }), err
}

// MountAt returns the topmost mount exactly at a path.
func MountAt(path string) (m Mount, found bool, err error) {
	all, err := MountsAt(path)
	if err != nil || len(all) == 0 {
		return Mount{}, false, err
	}
	return all[len(all)-1], true, nil
}

// MountOf returns the hmcfs mount or the served directory that contains a path. That of a mount
// is judged by the path alone.
func MountOf(path string) (m Mount, found bool, err error) {
	all, err := Mounts()
	if err != nil {
		return Mount{}, false, err
	}
	for _, c := range all {
		if inside := c.MountPoint == "/" || isInside(path, c.MountPoint); inside && len(c.MountPoint) >= len(m.MountPoint) {
			m, found = c, true
		}
	}
	if found && m.IsHMCFS() {
		return m, true, nil
	}
	s, found := client.ServedOf(path)
	return servedMount(s), found, nil
}
