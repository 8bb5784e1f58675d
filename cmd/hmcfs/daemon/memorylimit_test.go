package daemon

import (
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// TestMemoryOf takes the least of what the machine and the control groups have.
func TestMemoryOf(t *testing.T) {
	const machine = "MemTotal:       16777216 kB\nMemFree:  1 kB\n"
	for name, c := range map[string]struct {
		info, group string
		files       map[string]string
		want        devices.Size
		from        string
	}{
		"nothing":   {"", "", nil, 0, ""},
		"no groups": {machine, "", nil, 16 * devices.GiB, "proc/meminfo"},
		"v2 without a limit": {
			machine, "0::/a\n",
			map[string]string{"a/memory.max": "max\n"},
			16 * devices.GiB, "proc/meminfo",
		},
		"v2": {
			machine, "0::/a/b\n",
			map[string]string{"a/b/memory.max": "1073741824\n", "a/memory.max": "max\n"},
			devices.GiB, "sys/fs/cgroup/a/b/memory.max",
		},
		"v2, the group above has less": {
			machine, "0::/a/b\n",
			map[string]string{"a/b/memory.max": "2147483648\n", "a/memory.max": "536870912\n"},
			512 * devices.MiB, "sys/fs/cgroup/a/memory.max",
		},
		"v2, a container's own": {
			machine, "0::/../elsewhere\n",
			map[string]string{"memory.max": "1073741824\n"},
			devices.GiB, "sys/fs/cgroup/memory.max",
		},
		"v2, more than the machine": {
			machine, "0::/\n",
			map[string]string{"memory.max": "1099511627776\n"},
			16 * devices.GiB, "proc/meminfo",
		},
		"v1 beside others": {
			machine, "3:cpu:/x\n4:hugetlb,memory:/docker/1\n0::/\n",
			map[string]string{
				"memory/docker/1/memory.limit_in_bytes": "3221225472\n", "memory/memory.limit_in_bytes": "9223372036854771712\n",
			},
			3 * devices.GiB, "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
		},
		"lines that make no sense": {
			"MemTotal: many\n", "a\n:\n::\n0::\n\n", map[string]string{"memory.max": "-1\n"}, 0, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{
				"proc/meminfo":     {Data: []byte(c.info)},
				"proc/self/cgroup": {Data: []byte(c.group)},
			}
			for file, text := range c.files {
				root["sys/fs/cgroup/"+file] = &fstest.MapFile{Data: []byte(text)}
			}
			if got, from := memoryOf(root); got != c.want || from != c.from {
				t.Errorf("%v from %q, want %v from %q", got, from, c.want, c.from)
			}
		})
	}
}

// TestMemoryLimit follows what is in use.
func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct{ inUse, most, want devices.Size }{
		{0, 8 * devices.GiB, 128 * devices.MiB},
		{80 * devices.MiB, 8 * devices.GiB, 128 * devices.MiB},
		{112 * devices.MiB, 8 * devices.GiB, 168 * devices.MiB},
		{devices.GiB, 8 * devices.GiB, 1536 * devices.MiB},
		{7 * devices.GiB, 8 * devices.GiB, 8 * devices.GiB},
		{0, 64 * devices.MiB, 64 * devices.MiB},
	} {
		if got := memoryLimit(c.inUse, c.most); got != c.want {
			t.Errorf("with %v in use and at most %v: %v, want %v", c.inUse, c.most, got, c.want)
		}
	}
	if got := inUse(); got == 0 || got > devices.GiB {
		t.Errorf("%v are in use", got)
	}
}

// TestAfterCollections counts collections.
func TestAfterCollections(t *testing.T) {
	seen := make(chan struct{}, 1)
	afterCollections(func() {
		select {
		case seen <- struct{}{}:
		default:
		}
	})
	for range 3 {
		runtime.GC()
		select {
		case <-seen:
		case <-time.After(10 * time.Second):
			t.Fatal("a collection was not seen")
		}
	}
}
