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

// ParseSpec parses a specification. The ordinal may be omitted and is then 0.
func ParseSpec(text string) (Spec, error) {
	head, rest, _ := strings.Cut(strings.TrimSpace(text), ",")
	family, ordinal, hasOrdinal := strings.Cut(head, ":")
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

// Params reads the parameters of a spec one by one and collects every fault, so that a user
// sees all of them at once.
type Params struct {
	spec   Spec
	unread map[string]bool
	faults []string
}

// Read starts reading the parameters.
func (s Spec) Read() *Params {
	p := &Params{spec: s, unread: map[string]bool{}}
	for key := range s.Params {
		p.unread[key] = true
	}
	return p
}

func (p *Params) take(key string) (string, bool) {
	value, ok := p.spec.Params[key]
	delete(p.unread, key)
	return value, ok
}

func (p *Params) fault(err error) { p.faults = append(p.faults, err.Error()) }

// Size reads a size in bytes.
func (p *Params) Size(key string, byDefault Size) Size {
	text, ok := p.take(key)
	if !ok {
		return byDefault
	}
	n, err := ParseSize(text)
	if err != nil {
		p.fault(fmt.Errorf("%s: %w", key, err))
	} else if n == 0 {
		p.fault(fmt.Errorf("%s is 0", key))
	}
	return n
}

// Rate reads a bandwidth such as "20GB/s", in bytes a second. 0 is no limit.
func (p *Params) Rate(key string, byDefault Size) Size {
	text, ok := p.take(key)
	if !ok {
		return byDefault
	}
	n, err := ParseSize(strings.TrimSuffix(text, "/s"))
	if err != nil {
		p.fault(fmt.Errorf("%s: %w", key, err))
	}
	return n
}

// Duration reads a time such as "5us".
func (p *Params) Duration(key string, byDefault time.Duration) time.Duration {
	text, ok := p.take(key)
	if !ok {
		return byDefault
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		p.fault(fmt.Errorf("%s=%s is not a duration such as 5us", key, text))
	}
	return d
}

// Bool reads true or false.
func (p *Params) Bool(key string, byDefault bool) bool {
	text, ok := p.take(key)
	if !ok {
		return byDefault
	}
	switch text {
	case "true", "yes", "1":
		return true
	case "false", "no", "0":
		return false
	}
	p.fault(fmt.Errorf("%s=%s is not true or false", key, text))
	return byDefault
}

// Text reads a plain word.
func (p *Params) Text(key, byDefault string) string {
	if text, ok := p.take(key); ok {
		return text
	}
	return byDefault
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
