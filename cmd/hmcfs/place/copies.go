package place

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Copies returns one process of each other mount namespace that contains a mount,
// identified by its device number: for example that of a container that was started while
// it was mounted. Namespaces that this user may not see are not found.
func Copies(dev string) []User {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	seen := map[string]bool{own: true}
	var out []User
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		space, err := os.Readlink(filepath.Join(dir, "ns", "mnt"))
		if err != nil || seen[space] {
			continue
		}
		f, err := os.Open(filepath.Join(dir, "mountinfo"))
		if err != nil {
			continue
		}
		all, err := parseMounts(f)
		_ = f.Close() // only read
		if err != nil {
			continue
		}
		seen[space] = true
		at := slices.IndexFunc(all, func(m Mount) bool { return m.IsHMCFS() && m.Dev == dev })
		if at < 0 {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		out = append(out, User{PID: pid, Name: strings.TrimSpace(string(name)), Path: all[at].MountPoint, How: "mounted in its own mount namespace"})
	}
	return out
}
