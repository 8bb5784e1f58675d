package tests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// redis starts a Redis server without persistence for the test and returns its socket, or nothing
// where it or its client for Python is not installed.
func redis(t *testing.T) string {
	t.Helper()
	if kit.Missing("tool:redis-server") != nil || kit.Missing("redis") != nil {
		return ""
	}
	r, err := measure.StartRedis(context.WithoutCancel(t.Context()), mnt.TempDir(t))
	must(t, err)
	t.Cleanup(func() { must(t, r.Stop()) })
	return r.Socket
}

// TestCookbook runs the programs of docs/cookbook.md with little data. They check what they read
// themselves; the test checks what they print, that each has at most 40 lines, and that nothing is
// left behind.
func TestCookbook(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{})
	bin := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(exe, filepath.Join(bin, "hmcfs")))
	folder, err := filepath.Abs(filepath.Join("..", "docs", "cookbook"))
	must(t, err)
	document, err := os.ReadFile(filepath.Join("..", "docs", "cookbook.md"))
	must(t, err)
	server := redis(t)
	for name, c := range map[string]struct {
		program string
		args    func(dir string) []string
		says    []string
	}{
		"kv_blocks.py":  {kit.Python(), func(string) []string { return []string{"8", "4096"} }, []string{"hmcfs mget: 8 blocks of 4096 bytes in ", "/dev/shm: 8 blocks of 4096 bytes in "}},
		"weights.sh":    {"sh", func(dir string) []string { return []string{dir, "2"} }, []string{"the weights have 2", "the same after the death of the daemon"}},
		"checkpoint.py": {kit.Python(), func(dir string) []string { return []string{dir, "2", "20"} }, []string{"into host/, flushed behind: ", "to disk, with fsync: "}},
		"features.sh":   {"sh", func(string) []string { return []string{m.Dir, "2", "512"} }, []string{"files handed over: "}},
		"dataset.py":    {kit.Python(), func(dir string) []string { return []string{dir, "2", "256"} }, []string{"staged into host/: ", "mapped from disk: "}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, script := mnt.TempDir(t), filepath.Join(folder, name) // weights.sh mounts there
			cmd := exec.CommandContext(t.Context(), c.program, append([]string{script}, c.args(dir)...)...)
			// A script that is ended takes its processes along.
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
			cmd.WaitDelay = 10 * time.Second
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+filepath.Dir(kit.Python())+":"+os.Getenv("PATH"), "PYTHONPATH="+pythonFolder(t),
				"PYTHONDONTWRITEBYTECODE=1", "HMCFS_MOUNT="+m.Dir, "REDIS="+server)
			out, failed := cmd.CombinedOutput()
			if failed != nil {
				t.Fatalf("%v\n%s", failed, out)
			}
			if name == "kv_blocks.py" && server != "" {
				c.says = append(c.says, "Redis MGET: 8 blocks of 4096 bytes in ")
			}
			for _, text := range c.says {
				if !strings.Contains(string(out), text) {
					t.Errorf("no %q in\n%s", text, out)
				}
			}
			source, failed := os.ReadFile(script)
			must(t, failed)
			if n := strings.Count(string(source), "\n"); n > 40 {
				t.Errorf("%d lines", n)
			}
			if !strings.Contains(string(document), "cookbook/"+name) {
				t.Error("docs/cookbook.md does not name it")
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(m.Dir, "host", "[a-z]*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in host/: %v, %v", left, err)
	}
}
