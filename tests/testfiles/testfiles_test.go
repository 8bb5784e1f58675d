package testfiles_test

import (
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/testfiles"
)

// source is a package with a test for each way in which a test can use changed lines.
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
		at   testfiles.Lines
		want string
	}{
		"a line of a test":              {"a_test.go", testfiles.Lines{First: 6, Last: 6}, "TestA"},
		"between two tests":             {"a_test.go", testfiles.Lines{First: 8, Last: 8}, ""},
		"the end of one, all of one":    {"a_test.go", testfiles.Lines{First: 7, Last: 9}, "TestA TestB"},
		"what it calls":                 {"a_test.go", testfiles.Lines{First: 15, Last: 15}, "TestB"},
		"what that calls":               {"a_test.go", testfiles.Lines{First: 17, Last: 17}, "TestB"},
		"a constant, not elsewhere":     {"a_test.go", testfiles.Lines{First: 19, Last: 19}, "TestB"},
		"a type":                        {"a_test.go", testfiles.Lines{First: 11, Last: 11}, "FuzzC"},
		"a method":                      {"a_test.go", testfiles.Lines{First: 13, Last: 13}, "FuzzC"},
		"the imports":                   {"a_test.go", testfiles.Lines{First: 3, Last: 3}, ""},
		"TestMain":                      {"a_test.go", testfiles.Lines{First: 21, Last: 21}, ""},
		"a file of helpers, everywhere": {"kit_test.go", testfiles.Lines{First: 3, Last: 3}, "TestUser"},
		"a new file":                    {"user_test.go", testfiles.Lines{First: 1, Last: 1 << 30}, "TestUser TestMost"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := testfiles.Read("x")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(p.Touched(c.file, []testfiles.Lines{c.at}), " "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestUsing(t *testing.T) {
	kit.Check(t)
	dir := kit.Tree(t, map[string]string{"a_test.go": source, "b_test.go": "package x\n\nimport \"testing\"\n\nfunc TestMost(t *testing.T) { t.Log(most) }"})
	p, err := testfiles.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for names, want := range map[string]string{
		"most": "TestB TestMost", "limit": "TestB", "close": "FuzzC", "m": "", "nothing": "", "helper rig": "TestB FuzzC", "t.Log": "TestA TestB TestMost", "t.Logf": "",
	} {
		if got := strings.Join(p.Using(strings.Fields(names)...), " "); got != want {
			t.Errorf("using %s: %q, want %q", names, got, want)
		}
	}
}
