package daemon

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
)

const (
	// memoryShare is the divisor of the memory of the machine or control group that gives
	// the largest memory limit of the Go runtime. The rest is for the host tier, pinned
	// buffers and devices that share the host's memory.
	memoryShare = 2
	// ownMemory is the memory limit of the Go runtime as long as the daemon needs less.
	ownMemory = 128 * devices.MiB
	// garbageShare is the garbage, in percent of the memory in use, at which a collection starts
	// below the limit. Calls that set many keys allocate much that lives long: at Go's 100
	// percent, collections took a third of the daemon's time.
	garbageShare = 300
)

// limitMemory sets the memory limit of the Go runtime, unless the environment does, and
// adapts it to the memory in use. Only with a limit, garbage may grow to more than the memory in use.
func limitMemory(log *zap.Logger) {
	if text := os.Getenv("GOMEMLIMIT"); text != "" {
		log.Info("memory limit of the environment", zap.String("GOMEMLIMIT", text))
		return
	}
	has, from := memoryOf(os.DirFS("/"))
	if has == 0 {
		log.Info("no memory limit: the machine's memory size is unknown")
		return
	}
	most := has / memoryShare
	debug.SetMemoryLimit(int64(memoryLimit(0, most)))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
	afterCollections(func() { debug.SetMemoryLimit(int64(memoryLimit(inUse(), most))) })
	log.Info("memory limit", zap.Stringer("limit", most), zap.Stringer("memory", has), zap.String("from", from))
}

// memoryLimit returns the memory limit for the memory in use: half as much again, but not more than most. At a
// quarter more, with the heap of 200 000 keys, collections took half of the daemon's time; at twice as much, one
// user at all limits had the daemon use 273 MiB.
func memoryLimit(inUse, most devices.Size) devices.Size {
	return min(max(ownMemory, inUse+inUse/2), most, math.MaxInt64)
}

// inUse returns the memory that the Go runtime cannot return: the heap that survived the
// last collection, stacks, and the runtime's own memory.
func inUse() devices.Size {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/metadata/mcache/inuse:bytes"},
		{Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"},
		{Name: "/memory/classes/other:bytes"},
		{Name: "/memory/classes/profiling/buckets:bytes"},
	}
	metrics.Read(samples)
	var sum devices.Size
	for _, s := range samples {
		sum += devices.Size(s.Value.Uint64())
	}
	return sum
}

// collected is freed by each collection. Its pointer keeps the allocator from placing it in
// a block with live objects.
type collected struct{ _ *byte }

// afterCollections calls a function after each collection, for as long as the process
// lives.
func afterCollections(do func()) {
	runtime.AddCleanup(new(collected), func(do func()) {
		do()
		afterCollections(do)
	}, do)
}

// memoryOf returns the memory available to this process, and the file that says so: the
// machine's memory, or the lowest limit of its control groups. 0 means unknown. root is the
// root directory.
func memoryOf(root fs.FS) (has devices.Size, from string) {
	const info = "proc/meminfo"
	var kib uint64
	text, _ := fs.ReadFile(root, info) // without it only the groups remain
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
		// Each parent group has a limit of its own. The topmost group that a container sees
		// may be its own, under another path.
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

// memoryGroup reads a line of /proc/PID/cgroup: it returns the mount point of the
// hierarchy, the file with the memory limit of a group, which is empty for a hierarchy
// without memory, and the group.
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

// limitIn reads a limit; 0 means none: "max", or no such group.
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
