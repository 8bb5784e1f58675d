package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRun counts the tests of a module in which tests end in every possible way.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/x\n\ngo 1.26\n",
		"none/a.go":      "package none",
		"broken/a.go":    "package broken; var x int = \"no number\"\n",
		"dead/a_test.go": "package dead\nimport (\"os\"; \"testing\")\nfunc TestExit(t *testing.T) { t.Log(\"last words\"); os.Exit(3) }\n",
		"some/a_test.go": `package some
import "testing"
func TestGood(t *testing.T) { t.Log("a good test is silent"); t.Run("sub", func(t *testing.T) {}) }
func TestBad(t *testing.T) { t.Error("what went wrong") }
func TestSkipped(t *testing.T) { t.Skip("no such device") }
`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-vet=off")

	for _, tc := range []struct {
		name    string
		args    []string
		counts  string
		has     []string
		hasNot  string
		failing bool
	}{
		{
			"mixed",
			[]string{"./some", "./none"},
			"2 1 1",
			[]string{
				"what went wrong", "example.com/x/some TestSkipped: a_test.go:5: no such device",
				"said\texample.com/x/some TestBad\ta_test.go:4: what went wrong\n", "2 passed, 1 failed, 1 skipped",
			},
			"a good test is silent", true,
		},
		{"all well", []string{"-run", "Good", "./some"}, "2 0 0", []string{"ok\texample.com/x/some", "slow\texample.com/x/some TestGood\t"}, "FAIL", false},
		{"does not build", []string{"./broken"}, "0 1 0", []string{"cannot use \"no number\""}, "ok\t", true},
		{"dies", []string{"./dead"}, "0 1 0", []string{"last words", "FAIL\texample.com/x/dead"}, "ok\t", true},
		{"no such package", []string{"./nowhere"}, "0 1 0", nil, "ok\t", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counts := filepath.Join(t.TempDir(), "counts")
			var out strings.Builder
			err := run(t.Context(), &out, counts, append([]string{"-count=1"}, tc.args...))
			if (err != nil) != tc.failing {
				t.Errorf("error %v", err)
			}
			got, err := os.ReadFile(counts)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(got)) != tc.counts {
				t.Errorf("counted %q, want %q", got, tc.counts)
			}
			for _, s := range tc.has {
				if !strings.Contains(out.String(), s) {
					t.Errorf("output lacks %q:\n%s", s, out.String())
				}
			}
			if strings.Contains(out.String(), tc.hasNot) {
				t.Errorf("output has %q:\n%s", tc.hasNot, out.String())
			}
		})
	}
}

// TestArguments selects tests by the identifiers that they use.
func TestArguments(t *testing.T) {
	const uses = "package x\n\nimport \"testing\"\n\nfunc TestMore(t *testing.T) { t.Log(kit.Rounds(1)) }\n\nfunc TestUsual(t *testing.T) {}\n"
	t.Chdir(kit.Tree(t, map[string]string{
		"a/a_test.go": uses, "b/b_test.go": "package b\n\nfunc TestOther() { Rounds() }", "c/testdata/c_test.go": uses, ".d/d_test.go": uses,
	}))
	got, err := arguments([]string{"-v"}, "kit.Exhaustive,kit.Rounds")
	if want := []string{"-v", "-run", "^(TestMore)$", "./a"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err = arguments([]string{"-v"}, ""); err != nil || !slices.Equal(got, []string{"-v"}) {
		t.Errorf("%q, %v without names", got, err)
	}
	if _, err = arguments(nil, "kit.None"); err == nil {
		t.Error("no error where no test is left")
	}
}
