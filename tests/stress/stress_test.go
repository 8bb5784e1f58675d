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
	want := []lines{{3, 4}, {21, 22}, {30, 30}}
	if err != nil || len(got) != 1 || !slices.Equal(got["x/a_test.go"], want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// source is a package with a test for each way to be touched.
const source = `package x

import "testing"

func TestA(t *testing.T) {
	t.Log("a")
}

func TestB(t *testing.T) { helper(t) }

type rig struct{}

func (rig) close() {}

func helper(t *testing.T) { limit(t) }

func limit(t *testing.T) { t.Log(most) }

const most = 3

func TestMain(m *testing.M) { m.Run() }

func FuzzC(f *testing.F) { rig{}.close() }

func Testing(t *testing.T) { t.Log(most) }
`

func TestTouched(t *testing.T) {
	kit.Check(t)
	t.Chdir(kit.Tree(t, map[string]string{
		"x/a_test.go":    source,
		"x/kit_test.go":  "package x\n\nfunc shared() {}",
		"x/user_test.go": "package x\n\nimport \"testing\"\n\nfunc TestUser(t *testing.T) { shared() }\n\nfunc TestMost(t *testing.T) { t.Log(most) }",
	}))
	for name, c := range map[string]struct {
		file string
		at   lines
		want string
	}{
		"a line of a test":              {"a_test.go", lines{6, 6}, "TestA"},
		"between two tests":             {"a_test.go", lines{8, 8}, ""},
		"the end of one, all of one":    {"a_test.go", lines{7, 9}, "TestA TestB"},
		"what it calls":                 {"a_test.go", lines{15, 15}, "TestB"},
		"what that calls":               {"a_test.go", lines{17, 17}, "TestB"},
		"a constant, not elsewhere":     {"a_test.go", lines{19, 19}, "TestB"},
		"a type":                        {"a_test.go", lines{11, 11}, "FuzzC"},
		"a method":                      {"a_test.go", lines{13, 13}, "FuzzC"},
		"the imports":                   {"a_test.go", lines{3, 3}, ""},
		"TestMain":                      {"a_test.go", lines{21, 21}, ""},
		"a file of helpers, everywhere": {"kit_test.go", lines{3, 3}, "TestUser"},
		"a new file":                    {"user_test.go", lines{1, 1 << 30}, "TestUser TestMost"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePackage("x")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(p.touched(c.file, []lines{c.at}), " "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// repository is a module whose last commit is the base, and returns what writes
// a file of it.
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

// TestLimit ends the rounds early.
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
