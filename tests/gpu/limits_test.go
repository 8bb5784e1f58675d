package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestAvailable checks that the result is the minimum of what the machine and the groups have
// left.
func TestAvailable(t *testing.T) {
	kit.Check(t)
	for name, c := range map[string]struct {
		group string
		files map[string]string
		want  devices.Size
	}{
		"no groups": {"", nil, 8 * devices.GiB},
		"v2": {"0::/a/b\n", map[string]string{
			"a/b/memory.max": "max\n", "a/memory.max": "4294967296\n", "a/memory.current": "3221225472\n",
			"a/memory.stat": "anon 1\ninactive_file 1073741824\n",
		}, 2 * devices.GiB},
		"v2, a container's own": {"0::/../elsewhere\n", map[string]string{
			"memory.max": "1073741824\n", "memory.current": "2147483648\n",
		}, 0},
		"v1": {"3:cpu:/x\n4:memory:/docker/1\n0::/\n", map[string]string{
			"memory/docker/1/memory.limit_in_bytes": "3221225472\n", "memory/docker/1/memory.usage_in_bytes": "1073741824\n",
			"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "1073741824\n",
		}, 2 * devices.GiB},
	} {
		t.Run(name, func(t *testing.T) {
			proc, groups := t.TempDir(), t.TempDir()
			write(t, filepath.Join(proc, "meminfo"), "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
			write(t, filepath.Join(proc, "self/cgroup"), c.group)
			for file, text := range c.files {
				write(t, filepath.Join(groups, file), text)
			}
			if got := availableIn(proc, groups); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSandbox(t *testing.T) {
	kit.Check(t)
	for _, c := range []struct {
		kernel, log string
		named       bool
	}{
		{"Linux 6.18.0 x86_64", "[    0.000000] Linux version 6.18.0\n", false},
		{"Linux 4.4.0 x86_64", "[    0.000000] Starting gVisor...\n", true},
		{"Linux 4.19.0-gvisor x86_64", "", true},
	} {
		if got := sandboxOf(c.kernel, c.log); (got != "") != c.named {
			t.Errorf("%s: %q", c.kernel, got)
		}
	}
}
