package place

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// User is a process that uses a mount.
type User struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Path is the file or directory in use.
	Path string `json:"path"`
	// How is "open", "directory" or "mapped".
	How string `json:"how"`
}

// String describes the user: "bash (1234) in /mnt/hmc/host".
func (u User) String() string {
	return fmt.Sprintf("%s (%d) has %s %s", u.Name, u.PID, u.Path, u.How)
}

// Users returns the processes that keep a mount busy, as far as this user may see them,
// without this process. It reads only /proc and never accesses the mount.
func Users(mountPoint string) []User {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []User
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if u, ok := userOf(pid, mountPoint); ok {
			out = append(out, u)
		}
	}
	return out
}

func userOf(pid int, mountPoint string) (User, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	name, _ := os.ReadFile(filepath.Join(dir, "comm"))
	u := User{PID: pid, Name: strings.TrimSpace(string(name))}
	links := map[string]string{filepath.Join(dir, "cwd"): "as its directory", filepath.Join(dir, "root"): "as its root"}
	if fds, err := os.ReadDir(filepath.Join(dir, "fd")); err == nil {
		for _, fd := range fds {
			links[filepath.Join(dir, "fd", fd.Name())] = "open"
		}
	}
	for link, how := range links {
		target, err := os.Readlink(link)
		if err == nil && isInside(target, mountPoint) {
			u.Path, u.How = target, how
			return u, true
		}
	}
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		return u, false
	}
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i >= 0 {
			if path := strings.TrimSpace(line[i:]); isInside(path, mountPoint) {
				u.Path, u.How = path, "mapped"
				return u, true
			}
		}
	}
	return u, false
}

func isInside(path, mountPoint string) bool {
	return path == mountPoint || strings.HasPrefix(path, mountPoint+"/")
}
