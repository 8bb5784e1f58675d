package packages

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// script runs a program in the root of the sources, for minutes at most. A program that says with
// the status 77 that it can do nothing here skips the test.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = "../..", &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 77 {
		t.Skip(strings.TrimSpace(out.String()))
	}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out.Bytes()[max(0, out.Len()-4000):])
	}
	return out.String()
}

// TestPackages builds the packages and the image, and installs, uses and removes them. It takes
// minutes and a mirror of Debian.
func TestPackages(t *testing.T) {
	kit.Check(t)
	if !kit.Exhaustive() {
		t.Skip("builds a root file system of Debian; make check runs it")
	}
	kit.Require(t, "fuse", "root")
	if _, err := exec.LookPath("debootstrap"); err != nil {
		t.Skip("debootstrap is not installed")
	}
	base := t.TempDir()
	t.Setenv("BASE", base)
	script(t, "sh", "-c", `debootstrap --variant=minbase bookworm "$BASE" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" ||
		{ echo "debootstrap: no root file system could be made"; exit 77; }`)
	tar := t.TempDir() + "/base.tar"
	script(t, "tar", "-C", base, "--numeric-owner", "-cf", tar, ".")
	t.Setenv("IMAGE_BASE", tar)
	script(t, "packaging/build.sh", "deb", "rpm", "image")
	out := script(t, "packaging/test.sh", "deb", "rpm", "image")
	for _, want := range []string{"ok: deb\n", "ok: image\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !strings.Contains(out, "ok: rpm\n") {
		t.Log(out) // it was skipped, with the reason
	}
}

// TestScriptsParse has the shell read the scripts that the packages and their builders run.
func TestScriptsParse(t *testing.T) {
	for _, name := range []string{"build.sh", "test.sh", "preremove.sh", "reload.sh"} {
		if out, err := exec.Command("bash", "-n", "../../packaging/"+name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestPackagesNameTheirFiles checks that the files that the packages are made from are there.
func TestPackagesNameTheirFiles(t *testing.T) {
	text, err := os.ReadFile("../../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, name, found := strings.Cut(strings.TrimSpace(line), ": packaging/"); found {
			if _, err := os.Stat("../../packaging/" + name); err != nil {
				t.Error(err)
			}
		}
	}
}
