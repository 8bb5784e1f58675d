package packages

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

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

// TestManifests checks the manifests of docs/deploy against the types of Kubernetes, which are
// modules of packaging's own.
func TestManifests(t *testing.T) {
	if !kit.Exhaustive() {
		t.Skip("builds the types of Kubernetes; make check runs it")
	}
	script(t, "go", "-C", "packaging", "vet", "./...")
	script(t, "go", "-C", "packaging", "test", "./...")
}

// TestTemplates checks that the forms for issues are YAML with what GitHub asks for.
func TestTemplates(t *testing.T) {
	forms, err := filepath.Glob("../../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(forms) == 0 {
		t.Fatalf("no forms: %v", err)
	}
	for _, path := range forms {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID    string
				Attributes  map[string]any
				Validations map[string]bool
			}
			Blank *bool `yaml:"blank_issues_enabled"`
			Links []struct {
				Name, URL, About string
			} `yaml:"contact_links"`
		}
		if err := yaml.UnmarshalWithOptions(text, &form, yaml.Strict()); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if filepath.Base(path) == "config.yml" {
			continue
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s has no name, description or body", path)
		}
		for _, part := range form.Body {
			if !slices.Contains([]string{"markdown", "textarea", "input"}, part.Type) || (part.Type != "markdown" && part.Attributes["label"] == nil) {
				t.Errorf("%s: %+v", path, part)
			}
		}
	}
}
