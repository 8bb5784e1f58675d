package place

import (
	"fmt"
	"iter"
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
	var out []User
	for pid, dir := range processes() {
		if pid == os.Getpid() {
			continue
		}
		if u, ok := userOf(pid, dir, mountPoint); ok {
			out = append(out, u)
		}
	}
	return out
}

// processes returns all processes, with their directories in /proc.
func processes() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
		for _, dir := range dirs {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && !yield(pid, dir) {
				return
			}
		}
	}
}

func nameOf(dir string) string {
	name, _ := os.ReadFile(filepath.Join(dir, "comm"))
	return strings.TrimSpace(string(name))
}

func userOf(pid int, dir, mountPoint string) (User, bool) {
	u := User{PID: pid, Name: nameOf(dir)}
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
