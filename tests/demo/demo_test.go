package demo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// demo runs the demo on files of 4 MiB and returns what it printed. Nothing
// may be left of it, whatever its end.
func demo(t *testing.T, hmcfs string, change func(env []string) []string) (string, error) {
	t.Helper()
	scratch := t.TempDir()
	cmd := exec.Command("./demo.sh", "4MiB")
	cmd.Env = change(append(os.Environ(), "HMCFS="+hmcfs, "TMPDIR="+scratch))
	out, err := cmd.CombinedOutput()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	// Mounts are below it, so none of them is left either.
	if left, failed := filepath.Glob(scratch + "/*"); failed != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, failed)
	}
	return string(out), err
}

// end is the part of a text that tells how it ended.
func end(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

func TestDemo(t *testing.T) {
	kit.Require(t, "fuse", "root", "opencl", "tool:getfattr")
	hmcfs := kit.Build(t, "../../cmd/hmcfs")
	t.Run("works", func(t *testing.T) { works(t, hmcfs) })
	t.Run("picture", func(t *testing.T) { drawn(t, hmcfs) })
	for name, c := range map[string]struct{ cp, says string }{
		"a wrong byte is noticed": {
			cp: `/bin/cp "$@"
t=${2%/}; [ ! -d "$t" ] || t=$t/${1##*/}
case $1 in in/*) printf x | dd of="$t" bs=1 seek=1000 conv=notrunc status=none;; esac`,
			says: "checksums differ",
		},
		"a copy through the host is noticed": {
			cp:   `t=${2%/}; [ ! -d "$t" ] || t=$t/${1##*/}; dd if="$1" of="$t" bs=64K status=none`,
			says: "copy.npy: the bytes took the path",
		},
		"a copy that fails is noticed": {cp: `exit 7`, says: "$ cp in/activations.npy"},
	} {
		t.Run(name, func(t *testing.T) { notices(t, hmcfs, c.cp, c.says) })
	}
}

// works runs the demo without what not everybody has: a home.
func works(t *testing.T, hmcfs string) {
	t.Helper()
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	out, err := demo(t, hmcfs, func(env []string) []string {
		kept := []string{"GOCACHE=" + strings.TrimSpace(string(cache))}
		for _, v := range env {
			if !strings.HasPrefix(v, "HOME=") {
				kept = append(kept, v)
			}
		}
		return kept
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, end(out))
	}
	for _, want := range []string{
		"$ hmcfs mount ", "$ cp mnt/ocl0/activations.npy mnt/ocl0/copy.npy", "  d2d ", "  staged ",
		"Every byte arrived",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q; the end is\n%s", want, end(out))
		}
	}
}

// notices puts a cp into the path that does wrong.
func notices(t *testing.T, hmcfs, cp, says string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cp"), []byte("#!/bin/sh\n"+cp+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := demo(t, hmcfs, func(env []string) []string {
		return append(env, "PATH="+dir+":"+os.Getenv("PATH"))
	})
	if err == nil {
		t.Error("the demo succeeds")
	}
	if !strings.Contains(out, says) {
		t.Errorf("no %q; the end is\n%s", says, end(out))
	}
}

// drawn draws the README's picture again: what it shows is what a mount does today.
func drawn(t *testing.T, hmcfs string) {
	t.Helper()
	kit.Require(t, "numpy")
	out := filepath.Join(t.TempDir(), "demo.svg")
	if said, err := exec.Command("go", "run", "./picture", "-hmcfs", hmcfs, "-python", kit.Python(), "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	const document = "../../docs/demo.svg"
	if want, err := os.ReadFile(document); err != nil || string(got) != string(want) {
		t.Errorf("%s is not what the commands print now (%v); make picture draws it again", document, err)
	}
}
