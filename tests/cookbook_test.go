package tests

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// maxRecipe is the most lines that a program of the cookbook has.
const maxRecipe = 40

// TestCookbook runs the programs of docs/cookbook.md with small sizes. They check their own
// results; this checks what they print.
func TestCookbook(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{})
	for name, c := range map[string]struct {
		args func(folder string) []string
		want string
	}{
		"kv_blocks.py": {
			func(string) []string { return []string{"9", "70001"} },
			`^hmcfs mget: 9 blocks of 70001 bytes in [\d.]+ ms\n(Redis MGET: the same in [\d.]+ ms\n)?$`,
		},
		"weights.sh": {
			func(folder string) []string { return []string{folder, "2"} },
			`^(engine: mapped in [\d.]+ ms; own memory \d+ MiB, the weights have 2\nengine: the same after the restart; a copy .*\n){3}$`,
		},
		"checkpoint.py": {
			func(folder string) []string { return []string{folder, "2", "10"} },
			`^into host/, flushed behind: .* for each 2 MiB\nto disk, with fsync: .* for each 2 MiB\n$`,
		},
		"features.sh": {
			func(string) []string { return []string{m.Dir, "3", "1000"} },
			`^files handed over: \d+ ms; pipes: \d+ ms; sums \d+\.\d+ and \d+\.\d+\n$`,
		},
		"dataset.py": {
			func(folder string) []string { return []string{folder, "2", "500"} },
			`^staged into host/: .* for 2 shards of 500 samples\nmapped from disk: .* for 2 shards of 500 samples\n$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := cook(t, m, name, c.args(mnt.TempDir(t))...)
			if !regexp.MustCompile(c.want).MatchString(out) {
				t.Errorf("it prints\n%s", out)
			}
			left, err := filepath.Glob(m.Path("*", "*"))
			if must(t, err); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
		})
	}
}

// cook runs a program of the cookbook, with all that it starts in one process group, and returns
// what it prints.
func cook(t *testing.T, m *mnt.M, name string, args ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "docs", "cookbook", name))
	must(t, err)
	program := kit.Python()
	if strings.HasSuffix(name, ".sh") {
		program = "sh"
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{path}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonFolder(t), "PYTHONDONTWRITEBYTECODE=1", "HMCFS_MOUNT="+m.Dir,
		"PATH="+programs(t)+":"+os.Getenv("PATH"))
	if name == "kv_blocks.py" && kit.Missing("tool:redis-server") == nil && kit.Missing("redis") == nil {
		cmd.Env = append(cmd.Env, "REDIS="+redis(t))
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	return out.String()
}

// programs returns a folder with hmcfs, which is this test binary, and with the Python that has NumPy.
func programs(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	python, err := exec.LookPath(kit.Python())
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(exe, filepath.Join(dir, "hmcfs")))
	must(t, os.Symlink(python, filepath.Join(dir, "python3")))
	return dir
}

// redis starts a Redis server without persistence for the test, and returns its socket.
func redis(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(mnt.TempDir(t), "redis.sock")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(socket))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	kit.Eventually(t, 20*time.Second, func() error {
		_, err := os.Stat(socket)
		return err
	})
	return socket
}

// TestCookbookDocument checks that the document has all programs, and that none is too long.
func TestCookbookDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/cookbook.md")
	must(t, err)
	files, err := filepath.Glob("../docs/cookbook/*")
	if must(t, err); len(files) != 5 {
		t.Errorf("%d programs, want 5", len(files))
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		must(t, err)
		if n := bytes.Count(data, []byte("\n")); n > maxRecipe {
			t.Errorf("%s has %d lines, the most is %d", path, n, maxRecipe)
		}
		if name := filepath.Base(path); !bytes.Contains(text, []byte("(cookbook/"+name+")")) {
			t.Errorf("docs/cookbook.md does not link to %s", name)
		}
	}
}
