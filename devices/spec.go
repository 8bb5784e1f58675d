package devices

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spec is one parsed device specification such as
// "sim:0,size=1GiB,bandwidth=20GB/s,latency=5us".
type Spec struct {
	Family  Family
	Ordinal Ordinal
	// Params are the key=value parts, unordered. A family rejects those that it does not
	// know.
	Params map[string]string
	// Text is the user's text, for messages.
	Text string
}

// nameWords returns the families whose devices are not named by the word of the family.
func nameWords() map[string]Family { return map[string]Family{"ocl": "opencl"} }

// splitName splits the name of a device, such as cuda0, into the family and the number.
func splitName(name string) (family, ordinal string, is bool) {
	word := strings.TrimRight(name, "0123456789")
	if word == "" || word == name {
		return name, "", false
	}
	if f, other := nameWords()[word]; other {
		return string(f), name[len(word):], true
	}
	return word, name[len(word):], true
}

// ParseSpec parses a specification. It may begin with the name of the device, such as cuda0, instead of
// cuda:0. The ordinal may be omitted and is then 0.
func ParseSpec(text string) (Spec, error) {
	head, rest, _ := strings.Cut(strings.TrimSpace(text), ",")
	family, ordinal, hasOrdinal := strings.Cut(head, ":")
	if !hasOrdinal {
		family, ordinal, hasOrdinal = splitName(head)
	}
	spec := Spec{Family: Family(family), Params: map[string]string{}, Text: text}
	if family == "" {
		return Spec{}, fmt.Errorf("device %q: no family; write for example sim:0,size=1GiB", text)
	}
	if hasOrdinal {
		n, err := strconv.ParseUint(ordinal, 10, 31)
		if err != nil {
			return Spec{}, fmt.Errorf("device %q: %q is not a device number; write for example %s:0", text, ordinal, family)
		}
		spec.Ordinal = Ordinal(n)
	}
	for part := range strings.SplitSeq(rest, ",") {
		if part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" || value == "" {
			return Spec{}, fmt.Errorf("device %q: %q is not key=value; write for example size=1GiB", text, part)
		}
		if _, twice := spec.Params[key]; twice {
			return Spec{}, fmt.Errorf("device %q: %s is given twice", text, key)
		}
		spec.Params[key] = value
	}
	return spec, nil
}

// NameOf returns the name of the device that a user names by it, or as a specification does without
// parameters: cuda0 for cuda:0. Any other text is returned as it is. The device of another node, b/cuda:0,
// keeps the node.
func NameOf(text string) Name {
	at := strings.LastIndexByte(text, '/') + 1
	family, ordinal, is := strings.Cut(text[at:], ":")
	n, err := strconv.ParseUint(ordinal, 10, 31)
	if !is || err != nil {
		return Name(text)
	}
	for word, f := range nameWords() {
		if string(f) == family {
			family = word
		}
	}
	return Name(text[:at] + family + strconv.FormatUint(n, 10))
}

// Params reads the parameters of a spec one by one and collects every fault, so that a user
// sees all of them at once.
type Params struct {
	spec   Spec
	unread map[string]string
	faults []string
}

// Read starts reading the parameters.
func (s Spec) Read() *Params { return &Params{spec: s, unread: maps.Clone(s.Params)} }

// param reads a parameter by parse, and collects its error.
func param[T any](p *Params, key string, byDefault T, parse func(text string) (T, error)) T {
	text, ok := p.spec.Params[key]
	if !ok {
		return byDefault
	}
	delete(p.unread, key)
	value, err := parse(text)
	if err != nil {
		p.faults = append(p.faults, err.Error())
	}
	return value
}

// Size reads a size in bytes.
func (p *Params) Size(key string, byDefault Size) Size {
	return param(p, key, byDefault, func(text string) (Size, error) {
		n, err := ParseSize(text)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", key, err)
		}
		if n == 0 {
			return 0, fmt.Errorf("%s is 0", key)
		}
		return n, nil
	})
}

// Rate reads a bandwidth such as "20GB/s", in bytes a second. 0 is no limit.
func (p *Params) Rate(key string, byDefault Size) Size {
	return param(p, key, byDefault, func(text string) (Size, error) {
		n, err := ParseSize(strings.TrimSuffix(text, "/s"))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", key, err)
		}
		return n, nil
	})
}

// Duration reads a time such as "5us".
func (p *Params) Duration(key string, byDefault time.Duration) time.Duration {
	return param(p, key, byDefault, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return 0, fmt.Errorf("%s=%s is not a duration such as 5us", key, text)
		}
		return d, nil
	})
}

// Bool reads true or false.
func (p *Params) Bool(key string, byDefault bool) bool {
	return param(p, key, byDefault, func(text string) (bool, error) {
		switch text {
		case "true", "yes", "1":
			return true, nil
		case "false", "no", "0":
			return false, nil
		}
		return byDefault, fmt.Errorf("%s=%s is not true or false", key, text)
	})
}

// Text reads a plain word.
func (p *Params) Text(key, byDefault string) string {
	return param(p, key, byDefault, func(text string) (string, error) { return text, nil })
}

// Err returns every fault found and every parameter that was not read, the latter sorted by
// name.
func (p *Params) Err() error {
	faults := slices.Clone(p.faults)
	for _, key := range slices.Sorted(maps.Keys(p.unread)) {
		faults = append(faults, fmt.Sprintf("%s has no parameter %q", p.spec.Family, key))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("device %q: %s", p.spec.Text, strings.Join(faults, "; "))
}
