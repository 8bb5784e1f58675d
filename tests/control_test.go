package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// run runs a program, which must exit with status 0, and returns its output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestControlFiles(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	entries, err := os.ReadDir(m.Path(".hmcfs"))
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		st := lstat(t, m.Path(".hmcfs", e.Name()))
		if st.Mode&0o222 != 0 {
			t.Errorf("%s has mode %o", e.Name(), st.Mode)
		}
	}
	slices.Sort(names)
	if want := []string{"config", "stats", "topology.json", "version"}; !slices.Equal(names, want) {
		t.Errorf(".hmcfs has %q, want %q", names, want)
	}
	version := strings.TrimSpace(run(t, "cat", m.Path(".hmcfs", "version")))
	if version == "" || version != m.Status().Version {
		t.Errorf("version %q, status tells %q", version, m.Status().Version)
	}
	for _, name := range []string{"config", "stats", "topology.json"} {
		var v map[string]any
		if text := run(t, "cat", m.Path(".hmcfs", name)); json.Unmarshal([]byte(text), &v) != nil || len(v) == 0 {
			t.Errorf("%s is no JSON object: %s", name, text)
		}
		// Read in small pieces, it is still one consistent document.
		if text := run(t, "dd", "status=none", "bs=7", "if="+m.Path(".hmcfs", name)); json.Unmarshal([]byte(text), &v) != nil {
			t.Errorf("%s in pieces is no JSON object: %s", name, text)
		}
	}
	root, err := os.ReadDir(m.Dir)
	must(t, err)
	names = nil
	for _, e := range root {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	if want := []string{".hmcfs", "host", "keys", "publish", "sim0", "sim1"}; !slices.Equal(names, want) {
		t.Errorf("the root has %q, want %q", names, want)
	}
}

func TestCountersFollowTheBytes(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	const size = 3<<20 + 17
	before := m.Stats()
	create(t, m.Path("sim0", "a"), 1, size)
	wantContent(t, m.Path("sim0", "a"), 1, size)
	run(t, "cp", m.Path("sim0", "a"), m.Path("sim1", "b"))
	after := m.Stats()
	if n := after.Bytes("h2d") - before.Bytes("h2d"); n != size {
		t.Errorf("%d bytes by h2d, want %d", n, size)
	}
	// Read-ahead may read more than the reader, never less.
	if n := after.Bytes("d2h") - before.Bytes("d2h"); n < size || n > 2*size {
		t.Errorf("%d bytes by d2h, read %d", n, size)
	}
	if n := after.Bytes("staged") - before.Bytes("staged"); n != size {
		t.Errorf("%d bytes staged, want %d", n, size)
	}
	metrics, err := m.Client().Metrics(t.Context())
	must(t, err)
	for _, want := range []string{"hmcfs_", `path="h2d"`, "sim0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %q:\n%s", want, metrics)
		}
	}
}
