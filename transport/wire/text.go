package wire

import (
	"strings"
	"unicode"
)

// Printable returns a peer's text in a form that can be shown on a terminal and
// in a log: in one line, with every unprintable character replaced by instead.
func Printable(text string, instead rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return instead
	}, text)
}
