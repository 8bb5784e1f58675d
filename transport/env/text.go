package env

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// forever is longer than any wait.
const forever = 100 * 365 * 24 * time.Hour

// check reports whether a text is valid.
type check func(text string) bool

func bits() []string { return []string{"0", "1"} }

func isBit(s string) bool { return s == "0" || s == "1" }

func oneOf(words ...string) check {
	return func(s string) bool { return slices.Contains(words, s) }
}

// number returns the value of digits, or -1 for any other text: no sign, no
// spaces, and no more digits than fit.
func number(s string) int64 {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || s[0] == '+' {
		return -1
	}
	return int64(n)
}

func within(low, high int64) check {
	return func(s string) bool { n := number(s); return n >= low && n <= high }
}

// integer returns a reader for a number.
func integer(low, high int64, take func(*values, int64)) func(*values, string, bool) bool {
	return func(v *values, text string, _ bool) bool {
		if !within(low, high)(text) {
			return false
		}
		take(v, number(text))
		return true
	}
}

// word returns a reader for one of several words.
func word(words []string, take func(*values, string)) func(*values, string, bool) bool {
	return func(v *values, text string, _ bool) bool {
		if !slices.Contains(words, text) {
			return false
		}
		take(v, text)
		return true
	}
}

// decimal returns a reader for seconds with up to two decimals.
func decimal(high int64, take func(*values, time.Duration)) func(*values, string, bool) bool {
	return func(v *values, text string, _ bool) bool {
		whole, part, dotted := strings.Cut(text, ".")
		if dotted && (len(part) < 1 || len(part) > 2) {
			return false
		}
		hundredths := int64(0)
		if dotted {
			hundredths = number((part + "0")[:2])
		}
		seconds := number(whole)
		if seconds < 0 || hundredths < 0 || seconds > high || seconds == high && hundredths > 0 {
			return false
		}
		take(v, time.Duration(seconds)*time.Second+time.Duration(hundredths)*10*time.Millisecond)
		return true
	}
}

// each reports whether all comma-separated parts are valid.
func each(text string, right check) bool {
	for part := range strings.SplitSeq(text, ",") {
		if !right(part) {
			return false
		}
	}
	return true
}

// pairs parses "key:value,key:value", in which no key may be repeated.
func pairs(text string, keys map[string]check, take func(map[string]string)) bool {
	got := make(map[string]string)
	for part := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(part, ":")
		right, known := keys[key]
		if _, again := got[key]; !found || !known || again || !right(value) {
			return false
		}
		got[key] = value
	}
	take(got)
	return true
}

// isInterfaces checks a list of interface names as the kernel has them: up to 15
// bytes each.
func isInterfaces(s string) bool {
	if s != "" && strings.ContainsRune("^=", rune(s[0])) {
		s = s[1:]
	}
	return each(s, func(name string) bool {
		return name != "" && len(name) <= 15 && !strings.ContainsAny(name, " \t\n/:^=")
	})
}

func isPath(s string) bool { return !strings.ContainsRune(s, 0) && strings.TrimSpace(s) != "" }

const portsExpected = "auto, or ports and ranges a-b, separated by commas, from 1 to 65535, which must not overlap"

// isPorts checks "auto" or a list such as "60000-60015,60100".
func isPorts(s string) bool {
	if s == "auto" {
		return true
	}
	type stretch struct{ first, last int64 }
	var all []stretch
	return each(s, func(part string) bool {
		low, high, found := strings.Cut(part, "-")
		if !found {
			high = low
		}
		x := stretch{number(low), number(high)}
		if x.first < 1 || x.last > 65535 || x.first > x.last {
			return false
		}
		for _, y := range all {
			if x.first <= y.last && y.first <= x.last {
				return false
			}
		}
		all = append(all, x)
		return true
	})
}
