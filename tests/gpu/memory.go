package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// available returns the memory that a program can still allocate: what the machine has left,
// in a container at most what its limit leaves.
func available() devices.Size { return availableIn("/proc", "/sys/fs/cgroup") }

func availableIn(proc, cgroups string) devices.Size {
	var kib uint64
	n := devices.GiB
	if _, err := fmt.Sscanf(measure.Field(filepath.Join(proc, "meminfo"), "MemAvailable"), "%d kB", &kib); err == nil {
		n = devices.Size(kib) * devices.KiB
	}
	text, _ := os.ReadFile(filepath.Join(proc, "self/cgroup")) // without the file there are no groups
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		group := memoryGroup{top: cgroups, limit: "memory.max", used: "memory.current", cache: "inactive_file"}
		if fields[1] != "" {
			group = memoryGroup{
				top: filepath.Join(cgroups, "memory"), limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes",
				cache: "total_inactive_file",
			}
			if fields[1] != "memory" {
				continue
			}
		}
		// Each ancestor group has its own limit. The topmost group that a container sees may
		// be its own, under another path.
		for path := filepath.Clean("/" + fields[2]); ; path = filepath.Dir(path) {
			n = min(n, group.left(path))
			if path == "/" {
				break
			}
		}
	}
	return n
}

// memoryGroup holds the names of the files of one version of the kernel's control groups.
type memoryGroup struct{ top, limit, used, cache string }

// left returns the memory that the limit of a group leaves.
func (g memoryGroup) left(path string) devices.Size {
	limit, err := number(filepath.Join(g.top, path, g.limit))
	if err != nil { // "max", or the group does not exist
		return ^devices.Size(0)
	}
	used, err := number(filepath.Join(g.top, path, g.used))
	if err != nil {
		return limit
	}
	// The kernel can reclaim its page cache.
	stat, _ := os.ReadFile(filepath.Join(g.top, path, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		var cache uint64
		if _, err := fmt.Sscanf(line, g.cache+" %d", &cache); err == nil {
			used -= min(used, devices.Size(cache))
		}
	}
	return limit - min(limit, used)
}

func number(path string) (devices.Size, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return devices.Size(n), err
}
