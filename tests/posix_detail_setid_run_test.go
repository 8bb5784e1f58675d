package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/mnt"
)

// whoIs runs a program, a copy of id(1), as another user.
func whoIs(t *testing.T, name string) (out []byte) {
	t.Helper()
	cmd := exec.Command(name)
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: userAlice().Credential()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run %s: %v: %s", name, err, out)
	}
	return out
}

// TestSetIDProgramsThatOthersChanged runs set-user-ID programs that another user has changed:
// the kernel must not use a cached mode.
func TestSetIDProgramsThatOthersChanged(t *testing.T) {
	withoutUmask(t)
	id, err := exec.LookPath("id")
	must(t, err)
	program, err := os.ReadFile(id)
	must(t, err)
	size := int64(len(program))
	changes := map[string]func(f *os.File) error{
		"write":     func(f *os.File) error { _, err := f.WriteAt([]byte("x"), size); return err },
		"truncate":  func(f *os.File) error { return f.Truncate(size + 10) },
		"fallocate": func(f *os.File) error { return fallocate(f, 0, size, 5000) },
		"punch":     func(f *os.File) error { return fallocate(f, punchHole, size, 4096) },
		"copy_file_range": func(f *os.File) error {
			return withFile(f.Name()+".source", unix.O_RDONLY, func(from *os.File) error {
				at := size
				_, err := copyFileRange(from, nil, f, &at, 4096)
				return err
			})
		},
	}
	for _, passthrough := range []string{"auto", "off"} {
		o := mnt.Options{AllowOther: true, Extra: []string{"-o", "suid", "--passthrough", passthrough}}
		t.Run(passthrough, func(t *testing.T) {
			everywhereWith(t, o, func(t *testing.T, p place) {
				if p.isTmpfs() { // the tests' own tmpfs is nosuid
					must(t, unix.Mount("", filepath.Dir(p.dir), "", unix.MS_REMOUNT, ""))
				}
				for what, change := range changes {
					changeSetID(t, p.path(what), what, program, change)
				}
			})
		})
	}
}

// changeSetID lets another user change a set-user-ID program: it runs as root before, but not
// after.
func changeSetID(t *testing.T, name, what string, program []byte, change func(*os.File) error) {
	t.Helper()
	must(t, os.WriteFile(name, program, 0o777))
	must(t, os.WriteFile(name+".source", program, 0o777))
	must(t, unix.Chmod(name, 0o6777))
	if out := whoIs(t, name); !bytes.Contains(out, []byte("euid=0")) || !bytes.Contains(out, []byte("egid=0")) {
		t.Fatalf("the program's bits are without effect: %s", out)
	}
	mnt.AsUser(t, userAlice(), func() {
		if err := withFile(name, unix.O_RDWR, change); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
	if out := whoIs(t, name); bytes.Contains(out, []byte("euid=0")) || bytes.Contains(out, []byte("egid=0")) {
		t.Errorf("after a %s by another user it still runs as root: %s", what, out)
	}
}
