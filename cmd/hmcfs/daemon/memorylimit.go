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
	// memoryShare is the part of the machine's or the control group's memory that
	// Go's memory limit is at most. The rest is for what is not Go's: the host tier,
	// pinned buffers and devices that share the host's memory.
	memoryShare = 2
	// ownMemory is Go's memory limit while the daemon needs less than that.
	ownMemory = 128 * devices.MiB
	// spareMemory is the heap, beyond what is in use, that the daemon has where it
	// needs more than ownMemory: a collection each time that so many bytes were
	// allocated costs little.
	spareMemory = 32 * devices.MiB
)

// limitMemory sets Go's memory limit, unless the environment does, and has it follow
// what is in use.
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
	afterCollections(func() { debug.SetMemoryLimit(int64(memoryLimit(inUse(), most))) })
	log.Info("memory limit", zap.Stringer("limit", most), zap.Stringer("memory", has), zap.String("from", from))
}

// memoryLimit is Go's memory limit where so much is in use: what is in use and a
// quarter more, so that collections don't follow each other. It is at most most.
func memoryLimit(inUse, most devices.Size) devices.Size {
	return min(max(ownMemory, inUse+max(inUse/4, spareMemory)), most, math.MaxInt64)
}

// inUse is the memory that Go can't give back: what the last collection has left of
// the heap, stacks, and what the runtime takes for itself.
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

// collected is freed by each collection. Its pointer keeps it from sharing memory
// with what lives on.
type collected struct{ _ *byte }

// afterCollections has a function called after each collection, for as long as the
// process lives.
func afterCollections(do func()) {
	runtime.AddCleanup(new(collected), func(do func()) {
		do()
		afterCollections(do)
	}, do)
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
