package main

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	for line, want := range map[string][]string{
		"ab":       {"ab"},
		"abcd ef":  {"abcd", "    ef"},
		"abcdefgh": {"abcdef", "    gh"},
	} {
		if got := wrap(line, 6); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}
