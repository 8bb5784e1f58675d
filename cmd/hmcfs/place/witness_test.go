package place

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestWitnessNames names one state directory in several ways.
func TestWitnessNames(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(state, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	want := Paths{State: state, Runtime: "/r"}.Witness()
	for _, name := range []string{"state", "./state/", state + "/", "link", filepath.Join(dir, "link")} {
		if got := (Paths{State: name, Runtime: "/r"}).Witness(); got != want {
			t.Errorf("%s has %s, and %s has %s", name, got, state, want)
		}
	}
	if other := (Paths{State: dir, Runtime: "/r"}).Witness(); other == want {
		t.Errorf("%s and %s have the same witness", dir, state)
	}
}

// TestWitnessStays ends a mount whose memory is elsewhere, and one that has freed its
// memory: the witness of the first stays, as after a refused start.
func TestWitnessStays(t *testing.T) {
	dir := t.TempDir()
	p := Paths{State: filepath.Join(dir, "state"), Runtime: filepath.Join(dir, "run", "m"), DefaultRuntime: filepath.Join(dir, "run", "m")}
	if err := p.Prepare(os.Geteuid(), false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Witness(), []byte("w"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Clean()
	if _, err := os.Stat(p.Witness()); err != nil {
		t.Errorf("the witness is gone: %v", err)
	}
	p.ForgetAll()
	p.Clean()
	if _, err := os.Stat(p.Runtime); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the runtime directory is left: %v", err)
	}
}
