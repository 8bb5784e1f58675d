package tests

import (
	"os"
	"os/exec"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestPythonCopies copies a file inside a device with Python, and checks by user.hmc.path
// which of Python's methods move the bytes through the program.
func TestPythonCopies(t *testing.T) {
	kit.Require(t, "root", "fuse", "tool:python3")
	kit.Check(t)
	const size = 3<<20 + 5
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	from := m.Path("sim0", "from")
	must(t, os.WriteFile(from, kit.Bytes(1, 0, size), 0o644))
	for name, c := range map[string]struct{ program, way string }{
		"shutil.copy": {`import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])`, "h2d"},
		"os.copy_file_range": {`import os, sys
with open(sys.argv[1], "rb") as a, open(sys.argv[2], "wb") as b:
    left = os.fstat(a.fileno()).st_size
    while left > 0:
        left -= os.copy_file_range(a.fileno(), b.fileno(), left)`, "d2d"},
	} {
		to := m.Path("sim0", name)
		if out, err := exec.Command("python3", "-c", c.program, from, to).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", name, err, out)
			continue
		}
		got, err := os.ReadFile(to)
		if must(t, err); len(got) != size || kit.DiffAt(got, 1, 0) >= 0 {
			t.Errorf("%s: %d bytes, or others", name, len(got))
		}
		wantXattr(t, to, "user.hmc.path", c.way)
	}
}
