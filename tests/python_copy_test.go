package tests

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestPythonCopies copies a file inside a device with Python, once as docs/recipes.md shows, and checks by
// user.hmc.path which of Python's methods move the bytes through the program.
func TestPythonCopies(t *testing.T) {
	kit.Require(t, "root", "fuse", "tool:python3")
	kit.Check(t)
	const size = 3<<20 + 5
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	from := m.Path("sim0", "from")
	must(t, os.WriteFile(from, kit.Bytes(1, 0, size), 0o644))
	recipe := strings.NewReplacer("/mnt/hmc/cuda0/w.npy", from, "/mnt/hmc/cuda0/copy.npy", m.Path("sim0", "os.copy_file_range")).
		Replace(blocks(document(t, "docs/recipes.md"), "python")[0])
	for name, c := range map[string]struct{ program, way string }{
		"shutil.copy":        {`import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])`, "h2d"},
		"os.copy_file_range": {recipe, "d2d"},
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
