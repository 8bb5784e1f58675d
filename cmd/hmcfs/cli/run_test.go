package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestJobsAreInOnesOwnPlace: a directory that other users can write to, or that belongs to
// another user, is not used for secrets.
func TestJobsAreInOnesOwnPlace(t *testing.T) {
	own, open, other := t.TempDir(), t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	t.Setenv("TMPDIR", "/tmp")
	for dir, mode := range map[string]os.FileMode{own: 0o700, open: 0o770, other: 0o700} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(other, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	} else {
		other = "/"
	}
	// The paths of sockets are short, and a test's directory is not.
	for dir, want := range map[string]string{own: link, open: "/tmp", other: "/tmp", "": "/tmp", "/none": "/tmp", "/etc/passwd": "/tmp"} {
		set := dir
		if filepath.IsAbs(dir) && len(dir) > 20 {
			set = shortLink(t, dir)
		}
		if want == link {
			want = set
		}
		a := &app{Env: Env{Getenv: func(string) string { return set }}}
		if got := a.jobsDir(); got != want {
			t.Errorf("jobs of %q are in %q, not %q", dir, got, want)
		}
	}
}

// shortLink is a short path to a directory.
func shortLink(t *testing.T, dir string) string {
	t.Helper()
	short, err := os.MkdirTemp("/tmp", "j") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	path := filepath.Join(short, "l")
	if err = os.Symlink(dir, path); err != nil {
		t.Fatal(err)
	}
	return path
}
