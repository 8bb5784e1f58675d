package spread

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

func TestMain(m *testing.M) { Main(m) }

// actEnv enables the tests below, which do what their names say.
const actEnv = "HMCFS_SPREAD_ACT"

func TestActPasses(t *testing.T) {
	kit.Check(t)
}

func TestActFails(t *testing.T) {
	kit.Check(t)
	if os.Getenv(actEnv) != "" {
		t.Error("as it was told")
	}
}

func TestActExits(t *testing.T) {
	kit.Check(t)
	if os.Getenv(actEnv) != "" {
		fmt.Fprint(os.Stdout, "no newline")
		os.Exit(3)
	}
}

func TestActHangs(t *testing.T) {
	kit.Check(t)
	if os.Getenv(actEnv) != "" {
		select {}
	}
}

// acted runs some of the tests above.
func acted(t *testing.T, limit time.Duration, names ...string) (out string, code int) {
	t.Helper()
	t.Setenv(actEnv, "1")
	t.Setenv("TMPDIR", t.TempDir()) // processes that exit or are killed leave files there
	var all bytes.Buffer
	r := runner{args: []string{"-test.v=test2json"}, mark: true, limit: limit, start: time.Now(), out: &all}
	code = r.run(names, 2)
	return all.String(), code
}

func TestRun(t *testing.T) {
	kit.Check(t)
	for name, c := range map[string]struct {
		tests []string
		limit time.Duration
		code  int
		want  []string
	}{
		"all pass":     {[]string{"TestActPasses", "TestActPasses"}, 0, 0, []string{"\x16--- PASS: TestActPasses ", "\x16PASS\n"}},
		"one fails":    {[]string{"TestActPasses", "TestActFails"}, 0, 1, []string{"as it was told", "\x16--- PASS: TestActPasses ", "\x16--- FAIL: TestActFails ", "\x16FAIL\n"}},
		"one exits":    {[]string{"TestActExits", "TestActPasses"}, 0, 1, []string{"no newline\n", "exit status 3", "\x16--- FAIL: TestActExits ", "\x16--- PASS: TestActPasses ", "\x16FAIL\n"}},
		"out of time":  {[]string{"TestActHangs"}, time.Second, 1, []string{"test timed out", "\x16--- FAIL: TestActHangs ", "\x16FAIL\n"}},
		"nothing runs": {nil, 0, 0, []string{"\x16PASS\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := acted(t, c.limit, c.tests...)
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q", want)
				}
			}
			if n := strings.Count(out, "\x16PASS") + strings.Count(out, "\x16FAIL"); code != c.code || n != 1 {
				t.Errorf("code %d, %d ends", code, n)
			}
			if t.Failed() {
				t.Logf("%q", out)
			}
		})
	}
}

func TestList(t *testing.T) {
	kit.Check(t)
	names, err := new(runner).list(chosen(nil))
	if err != nil || !slices.Contains(names, "TestActHangs") || slices.Contains(names, "BenchmarkNothing") {
		t.Errorf("%q, %v", names, err)
	}
	names, err = new(runner).list(chosen([]string{"-test.v", "-test.run=^(TestList|TestNone)$"}))
	if err != nil || !slices.Equal(names, []string{"TestList"}) {
		t.Errorf("%q, %v", names, err)
	}
}

func BenchmarkNothing(*testing.B) {}

func TestSpreadable(t *testing.T) {
	kit.Check(t)
	for args, want := range map[string]bool{
		"": true,
		"-test.paniconexit0 -test.testlogfile=/x -test.timeout=10m0s -test.v=test2json -test.short=true": true,
		"-test.run=^TestX$":                           false,
		"-test.run=^(TestX)$":                         false,
		"-test.run=^(TestX|TestY)$ -test.v=test2json": true,
		"-test.run=^(TestX|TestY/a)$":                 false,
		"-test.list=.":                                false,
		"-test.bench=.":                               false,
		"-test.coverprofile=/x":                       false,
		"-test.timeout 10m":                           false,
		"-seed=1":                                     false,
	} {
		if got := spreadable(strings.Fields(args)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
	if got := forwarded([]string{"-test.testlogfile=/x", "-test.run=^(A|B)$", "-test.short=true", "-test.timeout=1m"}); !slices.Equal(got, []string{"-test.short=true"}) {
		t.Errorf("%q", got)
	}
}
