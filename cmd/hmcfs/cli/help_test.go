package cli

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// eachCommand calls fn for every visible command.
func eachCommand(fn func(*cobra.Command)) {
	for _, c := range commands((&app{Env: Env{}}).root()) {
		fn(c)
	}
}

// TestHelpFitsTheScreen checks that no line of a help text is too long, and that none is lost.
func TestHelpFitsTheScreen(t *testing.T) {
	seen := 0
	eachCommand(func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		r := run(t, args...)
		if r.code != 0 || r.errors != "" {
			t.Fatalf("%v: %+v", args, r)
		}
		for line := range strings.SplitSeq(r.out, "\n") {
			if seen++; utf8.RuneCountInString(line) > helpWidth {
				t.Errorf("%v: too long: %s", args, line)
			}
		}
		said := strings.Join(strings.Fields(r.out), " ")
		for _, f := range visibleFlags(c) {
			if want := strings.Join(strings.Fields(f.Usage), " "); !strings.Contains(said, flagName(f)) || !strings.Contains(said, want) {
				t.Errorf("%v does not describe %s", args, flagName(f))
			}
		}
		if want := strings.Join(strings.Fields(longText(c)), " "); !strings.Contains(said, want) {
			t.Errorf("%v leaves out: %s", args, want)
		}
	})
	if seen < 500 {
		t.Errorf("only %d lines", seen)
	}
}

// TestUsageNamesTheWordsOfFlags compares the words in the line of usage with those of the flags.
func TestUsageNamesTheWordsOfFlags(t *testing.T) {
	flag := regexp.MustCompile(`--([a-z0-9-]+)(?: ([A-Z]+)\b)?`)
	found := 0
	eachCommand(func(c *cobra.Command) {
		before, _, _ := strings.Cut(c.Use, " -- ")
		for _, m := range flag.FindAllStringSubmatch(before, -1) {
			f := c.Flags().Lookup(m[1])
			if f == nil {
				t.Errorf("%s has no --%s", c.CommandPath(), m[1])
				continue
			}
			if found++; flagWord(f) != m[2] {
				t.Errorf("%s: --%s has the value %q in its usage, and %q in its help", c.CommandPath(), m[1], m[2], flagWord(f))
			}
		}
	})
	if found < 50 {
		t.Errorf("only %d flags", found)
	}
}

// TestEveryCommandHasAGroup checks that help shows each command, and the groups.
func TestEveryCommandHasAGroup(t *testing.T) {
	root := (&app{}).root()
	help := run(t, "help").out
	for _, g := range root.Groups() {
		if !strings.Contains(help, "\n"+g.Title+"\n") {
			t.Errorf("help has no group %q", g.Title)
		}
	}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && (c.GroupID == "" || !strings.Contains(help, "\n  "+c.Name()+" ")) {
			t.Errorf("help does not show %s in a group", c.Name())
		}
	}
}

func TestFilled(t *testing.T) {
	for _, x := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 5, ""},
		{"one two\nthree", 9, "one two\nthree"},
		{"one two\nthree", 13, "one two three"},
		{"ä ö ü", 3, "ä ö\nü"},
		{"overlong word", 4, "overlong\nword"},
		{"a\n\n  code  stays\nb c", 3, "a\n\n  code  stays\nb c"},
	} {
		if got := filled(x.text, x.width); got != x.want {
			t.Errorf("filled(%q, %d) = %q, want %q", x.text, x.width, got, x.want)
		}
	}
}
