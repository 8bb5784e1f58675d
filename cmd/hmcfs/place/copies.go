package place

import (
	"os"
	"path/filepath"
	"slices"
)

// Copies returns one process of each other mount namespace that contains a mount,
// identified by its device number: for example that of a container that was started while
// it was mounted. Namespaces that this user may not see are not found.
func Copies(dev string) []User {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil
	}
	seen := map[string]bool{own: true}
	var out []User
	for pid, dir := range processes() {
		space, err := os.Readlink(filepath.Join(dir, "ns", "mnt"))
		if err != nil || seen[space] {
			continue
		}
		all, err := mountsOf(dir)
		if err != nil {
			continue
		}
		seen[space] = true
		at := slices.IndexFunc(all, func(m Mount) bool { return m.IsHMCFS() && m.Dev == dev })
		if at >= 0 {
			out = append(out, User{PID: pid, Name: nameOf(dir), Path: all[at].MountPoint, How: "mounted in its own mount namespace"})
		}
	}
	return out
}
