package lint

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the lists of dependencies instead of comparing them")

// TestDependencies compares what some packages are linked from, packages of the standard
// library left out, with lists that are checked in: a new dependency is seen in a review.
func TestDependencies(t *testing.T) {
	dir := root(t)
	for name, c := range map[string]struct {
		path string
		// not are packages that it must not reach, with those below them.
		not []string
	}{
		"fs":     {"fs", []string{"transport/collective", "transport/domain", "transport/job", "objects/filecollect", "cmd"}},
		"client": {"objects/client", []string{"transport/comm", "metadata/badgerkv", "fs", "cmd"}},
		"holder": {"cmd/hmcfs/holder", []string{"fs", "metadata", "transport", "objects/adminapi"}},
		"hmcfs":  {"cmd/hmcfs", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := dependencies(t, dir, c.path)
			for _, not := range c.not {
				if i := slices.IndexFunc(got, func(path string) bool { return reaches(path, not) }); i >= 0 {
					t.Errorf("%s is linked with %s", c.path, got[i])
				}
			}
			file := filepath.Join(dir, "tests", "lint", "testdata", "dependencies", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // it is of the sources
					t.Fatal(err)
				}
				return
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(string(text))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s has other dependencies than %s says (-list +now); where that is meant, run 'go test ./tests/lint -run TestDependencies -update':\n%s", c.path, file, diff)
			}
		})
	}
}

// reaches reports whether a package is one of ours, in or below a folder.
func reaches(path, folder string) bool {
	short, ours := (Import{Path: path}).ours()
	return ours && within(short, folder)
}

// dependencies lists what a package is linked from, in order.
func dependencies(t *testing.T, dir, path string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./"+path)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	all := strings.Fields(string(out))
	slices.Sort(all)
	return all
}
