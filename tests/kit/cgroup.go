package kit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// MemoryGroup is a cgroup that bounds the memory of its processes.
type MemoryGroup struct{ dir string }

// NewMemoryGroup creates a group of a size, in bytes, whose name begins with a text. It supports both versions of cgroups.
func NewMemoryGroup(name string, size uint64) (*MemoryGroup, error) {
	name = fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
	var errs []error
	for _, v := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		g := &MemoryGroup{dir: filepath.Join(v.root, name)}
		err := os.Mkdir(g.dir, 0o755)
		if err == nil {
			if err = os.WriteFile(filepath.Join(g.dir, v.limit), []byte(strconv.FormatUint(size, 10)), 0o644); err == nil {
				return g, nil
			}
			err = errors.Join(err, os.Remove(g.dir))
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("make a memory cgroup, which root may outside of containers: %w", errors.Join(errs...))
}

// Before returns the command line prefix that starts a process in the group.
func (g *MemoryGroup) Before() []string {
	return []string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, g.processes()}
}

// Add moves a process into the group. Memory that it has already is not counted.
func (g *MemoryGroup) Add(pid int) error {
	return os.WriteFile(g.processes(), []byte(strconv.Itoa(pid)), 0o644)
}

func (g *MemoryGroup) processes() string { return filepath.Join(g.dir, "cgroup.procs") }

// Remove removes the group, once its processes have ended.
func (g *MemoryGroup) Remove() error {
	var err error
	for range 100 {
		if err = os.Remove(g.dir); err == nil {
			return nil
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}
