package env

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// forever is longer than any wait.
const forever = 100 * 365 * 24 * time.Hour

// syntax is the set of valid texts of a knob.
type syntax struct {
	// Expected describes the valid values.
	Expected string
	// read parses a text and stores its value, if it is valid. foreign means a
	// text under HCOMM's name.
	read func(v *values, text string, foreign bool) bool
}

// ignore drops the value of a text, which has no meaning here.
func ignore[T any](*values, T) {}

// integer returns the syntax of a number.
func integer(low, high int64, take func(*values, int64)) syntax {
	return syntax{fmt.Sprintf("an integer from %d to %d", low, high), func(v *values, text string, _ bool) bool {
		n := number(text)
		if n < low || n > high {
			return false
		}
		take(v, n)
		return true
	}}
}

// word returns the syntax of one of several words.
func word(take func(*values, string), words ...string) syntax {
	last := len(words) - 1
	return syntax{strings.Join(words[:last], ", ") + " or " + words[last], func(v *values, text string, _ bool) bool {
		if !slices.Contains(words, text) {
			return false
		}
		take(v, text)
		return true
	}}
}

func bit(take func(*values, string)) syntax { return word(take, "0", "1") }

// checked returns the syntax of a text that is only checked.
func checked(expected string, right check) syntax {
	return syntax{expected, func(_ *values, text string, _ bool) bool { return right(text) }}
}

// pairs returns the syntax of "key:value,key:value", in which no key may be repeated.
func pairs(expected string, keys map[string]check, take func(v *values, got map[string]string)) syntax {
	return syntax{expected + ", each at most once", func(v *values, text string, _ bool) bool {
		got := make(map[string]string)
		for part := range strings.SplitSeq(text, ",") {
			key, value, found := strings.Cut(part, ":")
			right, known := keys[key]
			if _, again := got[key]; !found || !known || again || !right(value) {
				return false
			}
			got[key] = value
		}
		take(v, got)
		return true
	}}
}

// readConnect reads the time in which all ranks must join.
func readConnect(v *values, text string, foreign bool) bool {
	n := number(text)
	if n < 1 || n > 7200 || foreign && n < 120 {
		return false
	}
	v.connect = time.Duration(n) * time.Second
	return true
}

// readTimeout reads seconds with up to two decimals; 0 means forever.
func readTimeout(v *values, text string, _ bool) bool {
	const high = 2147483647
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
	if v.timeout = time.Duration(seconds)*time.Second + time.Duration(hundredths)*10*time.Millisecond; v.timeout == 0 {
		v.timeout = forever
	}
	return true
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

// check reports whether a text is valid.
type check func(text string) bool

func isBit(s string) bool { return s == "0" || s == "1" }

func oneOf(words ...string) check {
	return func(s string) bool { return slices.Contains(words, s) }
}

func within(low, high int64) check {
	return func(s string) bool { n := number(s); return n >= low && n <= high }
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

func isTopics(s string) bool {
	return each(strings.TrimPrefix(s, "^"), oneOf("ALG", "TASK", "RESOURCE"))
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
		overlaps := func(y stretch) bool { return x.first <= y.last && y.first <= x.last }
		if slices.ContainsFunc(all, overlaps) {
			return false
		}
		all = append(all, x)
		return true
	})
}
