package randomops

import (
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

func TestTextIsReadBack(t *testing.T) {
	p := Generate(1, 500)
	again, err := Parse("# a comment\n\n" + p.String())
	if err != nil {
		t.Fatal(err)
	}
	if again.String() != p.String() {
		t.Error("the program is another after writing and reading")
	}
	if Generate(1, 500).String() != p.String() || Generate(2, 500).String() == p.String() {
		t.Error("the seed does not name the program")
	}
}

func TestParseNamesTheMistake(t *testing.T) {
	for text, want := range map[string]string{
		"tree\nfly 1":        "line 2: unknown operation",
		"write 0 1":          "want 4 arguments",
		"read 0 -1 2":        "negative",
		"stat /etc/passwd":   "not a path below A or B",
		"stat A/../../b":     "not a path below A or B",
		"mkdir A/d 99":       "invalid syntax",
		"truncate 0 a-bit":   "invalid syntax",
		"open 0 A/f rw 7777": "",
	} {
		_, err := Parse(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// TestEveryVerbIsGenerated checks that the generator forgets no verb.
func TestEveryVerbIsGenerated(t *testing.T) {
	p := Generate(3, 20_000)
	for verb := range Verbs() {
		if !slices.ContainsFunc(p, func(o Op) bool { return o.Verb == verb }) {
			t.Errorf("%s is never generated", verb)
		}
	}
}

func TestGeneratedIsWellFormed(t *testing.T) {
	for _, o := range Generate(4, 20_000) {
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTwoPlainDirectoriesAgree compares the filesystem of the test directory with itself.
func TestTwoPlainDirectoriesAgree(t *testing.T) {
	kit.Check(t)
	for seed := range uint64(3) {
		p := Generate(seed, 150)
		want := Run(p, Target{A: t.TempDir(), B: t.TempDir()})
		got := Run(p, Target{A: t.TempDir(), B: t.TempDir()})
		if d := Compare(p, want, got); d != nil {
			t.Fatalf("seed %d: %v", seed, d)
		}
	}
}

func TestShrinkFindsTheTwoThatMatter(t *testing.T) {
	p := Generate(5, 300)
	p = slices.Insert(p, 200, op("truncate", 0, 123_456))
	p = slices.Insert(p, 100, op("punch", 0, 1<<20+77, 5000))
	small := Shrink(p, 5000, func(q Program) bool {
		punched := slices.IndexFunc(q, func(o Op) bool { return o.Verb == "punch" && o.number(2) > 4096 })
		return punched >= 0 && slices.ContainsFunc(q[punched:], func(o Op) bool { return o.Verb == "truncate" })
	})
	if len(small) != 2 || small[0].Verb != "punch" || small[1].Verb != "truncate" || small[1].number(1) != 0 {
		t.Errorf("got\n%s", small)
	}
}

func TestDiffTellsTheByte(t *testing.T) {
	p := Program{op("tree"), op("read", 0, 0, 3)}
	want := []Step{{Text: "a\nb"}, {Text: "3 bytes", Data: []byte{1, 2, 3}}}
	got := []Step{{Text: "a\nb"}, {Text: "3 bytes", Data: []byte{1, 9, 3}}}
	if d := Compare(p, want, got); d == nil || !strings.Contains(d.String(), "byte 1 of 3: want 0203, got 0903") {
		t.Errorf("got %v", d)
	}
	got[0].Text = "a\nc"
	if d := Compare(p, want, got); d == nil || !strings.Contains(d.String(), "want: b\ngot:  c") {
		t.Errorf("got %v", d)
	}
	if d := Compare(p, want, want); d != nil {
		t.Errorf("got %v", d)
	}
}
