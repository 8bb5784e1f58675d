package wire

import (
	"fmt"
	"strings"
	"unicode"
)

// nameOf returns the name of a value, which is its index in names. A value without
// one is named by its type and number.
func nameOf[T ~uint8 | ~uint16](v T, kind string, names []string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s %d", kind, v)
}

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
