package place

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// FSType is the type of an hmcfs mount in the mount table.
const FSType = "fuse.hmcfs"

// Mount is one line of the mount table.
type Mount struct {
	// Dev is "major:minor", as stat's st_dev.
	Dev        string
	MountPoint string
	Type       string
	Source     string
	// Options are those of the mount point, followed by those of the filesystem.
	Options []string
}

// IsHMCFS reports whether the mount is an hmcfs mount.
func (m Mount) IsHMCFS() bool { return m.Type == FSType }

// Owner returns the user whose daemon serves a FUSE mount; -1 for other mounts.
func (m Mount) Owner() int {
	for _, o := range m.Options {
		if id, ok := strings.CutPrefix(o, "user_id="); ok {
			if n, err := strconv.Atoi(id); err == nil {
				return n
			}
		}
	}
	return -1
}

// Mounts reads the mount table of this process.
func Mounts() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parseMounts(f)
}

func parseMounts(r io.Reader) ([]Mount, error) {
	var out []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		place, system, ok := strings.Cut(lines.Text(), " - ")
		a, b := strings.Fields(place), strings.Fields(system)
		if !ok || len(a) < 6 || len(b) < 2 {
			continue
		}
		m := Mount{Dev: a[2], MountPoint: unescape(a[4]), Type: b[0], Source: unescape(b[1])}
		m.Options = strings.Split(a[5], ",")
		if len(b) > 2 {
			m.Options = append(m.Options, strings.Split(b[2], ",")...)
		}
		out = append(out, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return out, nil
}

// unescape decodes the kernel's escapes, such as \040 for a space.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
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

// MountOf returns the hmcfs mount that contains a path, judging by the path alone.
func MountOf(path string) (m Mount, found bool, err error) {
	all, err := Mounts()
	if err != nil {
		return Mount{}, false, err
	}
	for _, c := range all {
		inside := path == c.MountPoint || c.MountPoint == "/" ||
			strings.HasPrefix(path, c.MountPoint+string(filepath.Separator))
		if inside && len(c.MountPoint) >= len(m.MountPoint) {
			m, found = c, true
		}
	}
	return m, found && m.IsHMCFS(), nil
}
