package daemon

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
)

// memoryShare is the part of the machine's or the control group's memory up to
// which Go's collector lets the daemon's own memory grow before it works
// harder. The rest is for what is not Go's: the host tier, pinned buffers and
// devices that share the host's memory.
const memoryShare = 2

// limitMemory sets Go's memory limit, unless the environment does.
func limitMemory(log *zap.Logger) {
	if text := os.Getenv("GOMEMLIMIT"); text != "" {
		log.Info("memory limit of the environment", zap.String("GOMEMLIMIT", text))
		return
	}
	has, from := memoryOf(os.DirFS("/"))
	if has == 0 {
		log.Info("no memory limit: the memory of the machine can't be told")
		return
	}
	limit := has / memoryShare
	debug.SetMemoryLimit(int64(min(limit, math.MaxInt64)))
	log.Info("memory limit", zap.Stringer("limit", limit), zap.Stringer("memory", has), zap.String("from", from))
}

// memoryOf returns the memory that this process can have, and which file says
// so: the machine's, or the least that a control group it is in may have. 0
// is unknown. root is the root directory.
func memoryOf(root fs.FS) (has devices.Size, from string) {
	const info = "proc/meminfo"
	var kib uint64
	text, _ := fs.ReadFile(root, info) // without it the groups are left
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "MemTotal: %d kB", &kib); err == nil {
			has, from = devices.Size(kib)*devices.KiB, info
			break
		}
	}
	text, _ = fs.ReadFile(root, "proc/self/cgroup") // without it there are no groups
	for line := range strings.Lines(string(text)) {
		top, file, group := memoryGroup(line)
		if file == "" {
			continue
		}
		// Each group above has a limit of its own. What a container sees as the
		// topmost may be its own, under another path.
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			name := path.Join(top, dir, file)
			if n := limitIn(root, name); n > 0 && (has == 0 || n < has) {
				has, from = n, name
			}
			if dir == "/" {
				break
			}
		}
	}
	return has, from
}

// memoryGroup reads a line of /proc/PID/cgroup: where its hierarchy is mounted,
// the file of a group's memory limit, which is empty for a hierarchy without
// memory, and the group.
func memoryGroup(line string) (top, file, group string) {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
	if len(fields) != 3 {
		return "", "", ""
	}
	switch controllers := "," + fields[1] + ","; {
	case fields[1] == "": // version 2
		return "sys/fs/cgroup", "memory.max", fields[2]
	case strings.Contains(controllers, ",memory,"):
		return "sys/fs/cgroup/memory", "memory.limit_in_bytes", fields[2]
	}
	return "", "", ""
}

// limitIn reads a limit; 0 is none: "max", or no such group.
func limitIn(root fs.FS, name string) devices.Size {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return devices.Size(n)
}
