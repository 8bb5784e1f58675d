package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/testfiles"
)

func TestParseDiff(t *testing.T) {
	kit.Check(t)
	got, err := parseDiff(`diff --git a/x/a_test.go b/x/a_test.go
--- a/x/a_test.go
+++ b/x/a_test.go
@@ -3 +3,2 @@ func TestA(t *testing.T) {
-	old
+	new
+++ b/x/not_a_file_test.go
@@ -20,2 +21,0 @@ func TestB(t *testing.T) {
-	gone
-	gone
@@ -30 +30 @@
-x
+y
diff --git a/x/gone_test.go b/x/gone_test.go
--- a/x/gone_test.go
+++ /dev/null
@@ -1,3 +0,0 @@
-package x
`)
	want := []testfiles.Lines{{First: 3, Last: 4}, {First: 21, Last: 22}, {First: 30, Last: 30}}
	if err != nil || len(got) != 1 || !slices.Equal(got["x/a_test.go"], want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// repository creates a module whose last commit is the base, and returns a function that
// writes one of its files.
func repository(t *testing.T) (write func(name, text string)) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-vet=off")
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	write = func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/x\n\ngo 1.26\n")
	write("old/a_test.go", "package old\n\nimport \"testing\"\n\nfunc TestOld(t *testing.T) { t.Fatal(\"nobody asked\") }\n")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"add", "."},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first"},
	} {
		if _, err := git(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	return write
}

func TestRun(t *testing.T) {
	kit.Check(t)
	const head = "package new\n\nimport \"testing\"\n\n"
	for name, c := range map[string]struct {
		text string
		has  []string
		err  error
	}{
		"nothing":      {"", []string{"no test differs", "\n0 passed, 0 failed, 0 skipped\n"}, nil},
		"passes":       {head + "func TestNew(t *testing.T) {}\n", []string{"new: TestNew\n", "3 of 3 rounds of 1 tests", "\n3 passed, 0 failed, 0 skipped\n"}, nil},
		"fails":        {head + "func TestNew(t *testing.T) { t.Error(\"why\") }\n\nfunc TestTwo(t *testing.T) {}\n", []string{"FAIL new TestNew", "why", "\n3 passed, 3 failed, 0 skipped\n"}, errFailed},
		"all skipped":  {head + "func TestNew(t *testing.T) { t.Skip(\"no\") }\n", []string{"\n0 passed, 0 failed, 3 skipped\n"}, errNothing},
		"does not run": {head + "import \"os\"\n\nfunc TestMain(*testing.M) { os.Exit(0) }\n\nfunc TestNew(t *testing.T) {}\n", []string{"it did not run", "\n0 passed, 3 failed, 0 skipped\n"}, errFailed},
	} {
		t.Run(name, func(t *testing.T) {
			write := repository(t)
			if c.text != "" {
				write("new/a_test.go", c.text)
			}
			var out strings.Builder
			o := options{count: 3, atATime: 2, load: 1, limit: time.Hour, timeout: time.Minute}
			if err := run(t.Context(), &out, o, "HEAD"); !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			for _, want := range c.has {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), "nobody asked") {
				t.Errorf("a test ran that is as it was:\n%s", out.String())
			}
		})
	}
}

func TestDoesNotBuild(t *testing.T) {
	kit.Check(t)
	repository(t)("new/a_test.go", "package new\n\nimport \"testing\"\n\nfunc TestNew(t *testing.T) { nowhere() }\n")
	var out strings.Builder
	err := run(t.Context(), &out, options{count: 1, atATime: 1, limit: time.Hour, timeout: time.Minute}, "HEAD")
	if err == nil || !strings.Contains(err.Error(), "undefined: nowhere") {
		t.Errorf("error %v", err)
	}
}

// TestLimit checks that the limit ends the rounds early.
func TestLimit(t *testing.T) {
	kit.Check(t)
	var out strings.Builder
	s := &score{out: &out, shown: map[string]bool{}}
	if rounds := s.repeat(t.Context(), options{count: 1000, atATime: 1}, []turn{{".", "/bin/true", "TestX"}}); rounds == 1000 {
		t.Error("every round ran")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if rounds := s.repeat(ctx, options{count: 1000, atATime: 1, limit: time.Hour}, []turn{{".", "/bin/true", "TestX"}}); rounds == 1000 {
		t.Error("every round ran, after it was told to end")
	}
}

func TestSpin(t *testing.T) {
	kit.Check(t)
	before := runtime.GOMAXPROCS(0)
	spin(3)()
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("GOMAXPROCS was %d and is %d", before, after)
	}
}
