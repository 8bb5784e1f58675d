package tests

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/spread"
)

// pythonFolder returns a folder with the Python package, compiled: each Python that starts would
// compile it anew, since none may write into the source tree. All processes of the tests share it.
func pythonFolder(t testing.TB) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "objects", "client", "python"))
	must(t, err)
	shared := spread.Prepared()
	if shared == "" {
		return folder
	}
	compiled := filepath.Join(shared, "python")
	if _, err = os.Stat(compiled); err == nil {
		return compiled
	}
	mine, err := os.MkdirTemp(shared, "python-") //nolint:usetesting // it is for all tests, and outlives this one
	must(t, err)
	must(t, os.CopyFS(mine, os.DirFS(folder)))
	if out, failed := exec.Command(kit.Python(), "-m", "compileall", "-q", mine).CombinedOutput(); failed != nil {
		t.Fatalf("compile the Python package: %v\n%s", failed, out)
	}
	must(t, os.Chmod(mine, 0o755))
	if err = os.Rename(mine, compiled); errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		err = os.RemoveAll(mine) // another process was faster
	}
	must(t, err)
	return compiled
}

// runPython runs Python with the package, in an empty folder.
func runPython(t *testing.T, m *mnt.M, args ...string) {
	t.Helper()
	runPythonOf(t, kit.Python(), m, args...)
}

func runPythonOf(t *testing.T, python string, m *mnt.M, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-B"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonFolder(t)+":"+os.Getenv("PYTHONPATH"), "HMCFS_MOUNT="+m.Dir,
		"CTRL_UDS_DIR="+cmd.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("python: %v\n%s", err, out)
	}
}

// TestPythonPackage runs the tests of the Python package against a mount.
func TestPythonPackage(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy", "pytest")
	m := mnt.Mount(t, mnt.Options{})
	t.Setenv("HMCFS_ROUNDS", strconv.Itoa(kit.Rounds(160, 160, 10_000))) // of what must not leak
	words := make([]string, 0, len(hetero.Statuses()))
	for _, status := range hetero.Statuses() {
		words = append(words, status.Name)
	}
	t.Setenv("HMCFS_STATUSES", strings.Join(words, " "))
	withTorch := filepath.Join(pythonFolder(t), "tests", "test_torch.py")
	t.Run("numpy", func(t *testing.T) {
		runPytest(t, m, pythonFolder(t), "--ignore", withTorch)
	})
	t.Run("torch", func(t *testing.T) {
		kit.Require(t, "torch")
		runPytest(t, m, withTorch)
	})
	t.Run("plain", func(t *testing.T) { runPlain(t, m) })
}

// runPlain uses the package by the standard library alone, with each Python that is there: later ones
// have buffers and mappings that others lack.
func runPlain(t *testing.T, m *mnt.M) {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range []string{kit.Python(), "python3.9", "python3.10", "python3.12", "python3.13", "python3.14"} {
		out, err := exec.Command(name, "-c", "import sys; print(sys.version.replace('\\n', ''), sys.executable, sep='\\n', end='')").Output()
		version, program, _ := strings.Cut(string(out), "\n") // what is found may be a script that looks for the program
		if err == nil && !seen[version] {
			seen[version] = true
			runPythonOf(t, program, m, filepath.Join(pythonFolder(t), "tests", "plain.py"))
		}
	}
}

// runPytest runs tests of the Python package.
func runPytest(t *testing.T, m *mnt.M, args ...string) {
	t.Helper()
	// A plugin of a package that PyTorch needs would make each start slower.
	runPython(t, m, append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"}, args...)...)
}

// TestPythonCUDA opens, loads and binds memory of cards in Python.
func TestPythonCUDA(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy", "pytest")
	m := mountCards(t)
	t.Setenv("HMCFS_CARDS", m.Dir)
	runPytest(t, m, filepath.Join(pythonFolder(t), "tests", "test_cuda.py"))
}

// TestPythonAfterKill kills the daemon of a Python program: its calls fail, its arrays stay, and it
// can connect again after a restart.
func TestPythonAfterKill(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{})
	for _, device := range []string{"host", "sim0"} {
		must(t, os.WriteFile(m.Path(device, "x"), kit.Bytes(1, 0, 100_000), 0o600))
	}
	want := filepath.Join(t.TempDir(), "want")
	must(t, os.WriteFile(want, kit.Bytes(1, 0, 100_000), 0o600))
	cmd := exec.CommandContext(t.Context(), kit.Python(), "-B", "-c", `
import errno, hmcfs, os, sys
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
y = fs.open("sim0/x").numpy()
z = fs.empty(1000)
z[:] = 7
bound = fs.bind("host/bound", z)
events = fs.watch("no-*")
step()
assert isinstance(fails(lambda: fs.get("k")), hmcfs.Disconnected)
fails(lambda: offered.result(timeout=60))
assert isinstance(fails(lambda: next(events)), hmcfs.Disconnected)
want = open(sys.argv[1], "rb").read()
assert x.tobytes() == y.tobytes() == want
y[:] = 5
fails(lambda: fs.open("sim0/x"))
step()
again = hmcfs.connect()
assert again.get("k") == b"value"
# The next daemon does not know that x is mapped, and takes no page of it away all the same.
for take in (lambda: os.truncate(again.path + "/host/x", 10), lambda: open(again.path + "/host/x", "wb")):
    try:
        take()
        raise AssertionError("the memory of x was taken away")
    except OSError as e:
        assert e.errno == errno.EBUSY, e
x[:1] = 200
assert x.tobytes() == open(again.path + "/host/x", "rb").read()
os.remove(again.path + "/host/x")
assert x.tobytes()[1:] == want[1:] and (y == 5).all()
assert isinstance(fails(lambda: again.open("sim0/x")), hmcfs.Lost)
assert open(again.path + "/host/bound", "rb").read() == z.tobytes()
bound.close()
assert not os.path.exists(again.path + "/host/bound")
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

// TestPythonDocuments runs every snippet of Python in docs: those about cards on a simulated device, and those about a
// served directory by the socket of the daemon, where the mount is not used.
func TestPythonDocuments(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{})
	there := strings.NewReplacer("/mnt/hmc", m.Dir, "cuda0", "sim0", `os.path.expanduser("~/hmcfs-files")`, "hmcfs.connect().socket_path")
	runPython(t, m, "-c", `
import hmcfs, numpy as np
fs = hmcfs.connect()
np.save(fs.path + "/sim0/w.npy", np.arange(1000.0))
for device in ("host", "sim0"):
    hmcfs.save_file({"h/0/attn.weight": np.arange(10.0)}, fs.path + f"/{device}/m.safetensors")
`)
	// fsspec finds hmcfs:// by the entry point of an installed package, as TestWheel checks.
	site := filepath.Join(t.TempDir(), "hmcfs-0.dist-info")
	must(t, os.Mkdir(site, 0o700))
	must(t, os.WriteFile(filepath.Join(site, "METADATA"), []byte("Name: hmcfs\nVersion: 0\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(site, "entry_points.txt"), []byte("[fsspec.specs]\nhmcfs = hmcfs._fsspec:HmcfsFileSystem\n"), 0o600))
	t.Setenv("PYTHONPATH", filepath.Dir(site))
	pages, err := filepath.Glob("../docs/*.md")
	must(t, err)
	ran := 0
	for _, page := range pages {
		for i, snippet := range blocks(document(t, page[len("../"):]), "python") {
			ran++
			t.Run(fmt.Sprintf("%s-%d", filepath.Base(page), i), func(t *testing.T) {
				if strings.Contains(snippet, "hmcfs.init()") {
					runRanks(t, 2, kit.Python(), "-B", "-c", snippet)
					return
				}
				runPython(t, m, "-c", there.Replace(snippet))
			})
		}
	}
	if ran < 14 {
		t.Errorf("only %d snippets", ran)
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
