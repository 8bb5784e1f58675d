package wire

import (
	"strings"
	"unicode"
)

// Printable is a text of a peer as it may be shown on a terminal and in a log:
// in one line, with instead in the place of whatever can't be printed.
func Printable(text string, instead rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return instead
	}, text)
}
