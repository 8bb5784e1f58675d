package tests

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// pythonFolder returns the folder of the Python package.
func pythonFolder(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "objects", "client", "python"))
	must(t, err)
	return folder
}

// runPython runs Python with the package, in an empty folder.
func runPython(t *testing.T, m *mnt.M, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kit.Python(), append([]string{"-B"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonFolder(t), "HMCFS_MOUNT="+m.Dir, "CTRL_UDS_DIR="+cmd.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("python: %v\n%s", err, out)
	}
}

// TestPythonPackage runs the tests of the Python package against a mount.
func TestPythonPackage(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy", "pytest")
	m := mnt.Mount(t, mnt.Options{})
	runPython(t, m, "-m", "pytest", "-q", "-p", "no:cacheprovider", pythonFolder(t))
}

// TestPythonAfterKill kills the daemon of a Python program: its calls fail, its arrays stay, and it
// can connect again after a restart.
func TestPythonAfterKill(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{})
	must(t, os.WriteFile(m.Path("host", "x"), kit.Bytes(1, 0, 100_000), 0o600))
	want := filepath.Join(t.TempDir(), "want")
	must(t, os.WriteFile(want, kit.Bytes(1, 0, 100_000), 0o600))
	cmd := exec.CommandContext(t.Context(), kit.Python(), "-B", "-c", `
import hmcfs, sys
def step():
    print("ready", flush=True)
    sys.stdin.readline()
def fails(call):
    try:
        call()
    except hmcfs.HmcfsError as e:
        return e
    raise AssertionError("it did not fail")
fs = hmcfs.connect()
fs.set("k", b"value")
offered = fs.publish("never", bytearray(10))
x = fs.open("host/x").numpy()
step()
assert isinstance(fails(lambda: fs.get("k")), hmcfs.Disconnected)
fails(lambda: offered.result(timeout=60))
assert x.tobytes() == open(sys.argv[1], "rb").read()
step()
again = hmcfs.connect()
assert again.get("k") == b"value"
again.close()
fs.close()
print("done", flush=True)
`, want)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonFolder(t), "HMCFS_MOUNT="+m.Dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { must(t, cmd.Wait()) }()
	lines := bufio.NewScanner(out)
	said := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it says %q, want %q", lines.Text(), want)
		}
	}
	said("ready")
	m.Kill()
	_, err = in.Write([]byte("\n"))
	must(t, err)
	said("ready")
	m.Start()
	_, err = in.Write([]byte("\n"))
	must(t, err)
	said("done")
}

// TestPythonDocument runs every snippet of docs/python.md.
func TestPythonDocument(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{})
	text, err := os.ReadFile(filepath.Join("..", "docs", "python.md"))
	must(t, err)
	snippets := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(snippets) < 3 {
		t.Fatalf("%d snippets", len(snippets))
	}
	for _, snippet := range snippets {
		runPython(t, m, "-c", snippet[1])
	}
}

// TestWheel installs the package into a new environment, without a network, and uses it: all of
// its modules, and its entry point for fsspec.
func TestWheel(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "fsspec", "numpy", "pip", "setuptools", "wheel")
	m := mnt.Mount(t, mnt.Options{})
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "HMCFS_MOUNT="+m.Dir, "PYTHONPATH=", "PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("make", "-C", "..", "wheel", "WHEELS="+dir, "PYTHON="+kit.Python())
	wheels, err := filepath.Glob(filepath.Join(dir, "hmcfs-*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("%v, %v", wheels, err)
	}
	env := filepath.Join(dir, "env")
	run(kit.Python(), "-m", "venv", "--without-pip", "--system-site-packages", env)
	inside := filepath.Join(env, "bin", "python")
	run(kit.Python(), "-m", "pip", "--python", inside, "install", "-q", wheels[0])
	run(inside, "-c", `
import fsspec, hmcfs, hmcfs.compat.datasystem, hmcfs.compat.hmc
with hmcfs.connect() as fs:
    fs.set("wheel", bytes(range(256)) * 40)
    assert fs.get("wheel") == bytes(range(256)) * 40
with fsspec.open("hmcfs://keys/wheel") as f:
    assert f.read() == bytes(range(256)) * 40
assert "site-packages" in hmcfs.__file__, hmcfs.__file__
`)
}
