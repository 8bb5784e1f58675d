package randomops

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Op is one operation: a verb and its arguments.
type Op struct {
	Verb string
	Args []string
}

// Program is a sequence of operations.
type Program []Op

// String returns the operation as a line of a program.
func (o Op) String() string { return strings.Join(append([]string{o.Verb}, o.Args...), " ") }

// String returns the program as text, which Parse reads.
func (p Program) String() string {
	var b strings.Builder
	for _, op := range p {
		b.WriteString(op.String() + "\n")
	}
	return b.String()
}

// clone returns a copy that shares no memory with p.
func (p Program) clone() Program {
	out := slices.Clone(p)
	for i := range out {
		out[i].Args = slices.Clone(out[i].Args)
	}
	return out
}

// op returns an operation whose arguments are the printed values.
func op(verb string, args ...any) Op {
	o := Op{Verb: verb}
	for _, a := range args {
		o.Args = append(o.Args, fmt.Sprint(a))
	}
	return o
}

// number returns argument i, which check has found to be a number.
func (o Op) number(i int) int64 {
	n, err := strconv.ParseInt(o.Args[i], 10, 64)
	if err != nil {
		panic(fmt.Errorf("%v: %w", o, err))
	}
	return n
}

// slot returns argument i as the index of a handle or map.
func (o Op) slot(i int) int { return int(o.number(i)) % slots }

// seed returns argument i as the seed of a content.
func (o Op) seed(i int) uint64 { return uint64(o.number(i)) }

// mode returns argument i, an octal number.
func (o Op) mode(i int) uint32 {
	n, err := strconv.ParseUint(o.Args[i], 8, 12)
	if err != nil {
		panic(fmt.Errorf("%v: %w", o, err))
	}
	return uint32(n)
}

// Parse parses a program, and returns an error for its first mistake.
func Parse(text string) (Program, error) {
	var p Program
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		o := Op{Verb: words[0], Args: words[1:]}
		if err := o.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		p = append(p, o)
	}
	return p, nil
}

// check compares the arguments with those that the verb takes.
func (o Op) check() error {
	v, ok := Verbs()[o.Verb]
	if !ok {
		return fmt.Errorf("unknown operation %q", o.Verb)
	}
	kinds := strings.Fields(v.Args)
	if len(kinds) != len(o.Args) {
		return fmt.Errorf("%v: want %d arguments: %s", o, len(kinds), v.Args)
	}
	for i, kind := range kinds {
		var err error
		switch kind {
		case argPath:
			if top, _, _ := strings.Cut(o.Args[i], "/"); top != "A" && top != "B" || strings.Contains(o.Args[i], "..") {
				err = fmt.Errorf("%q is not a path below A or B", o.Args[i])
			}
		case argMode:
			_, err = strconv.ParseUint(o.Args[i], 8, 12)
		case argWord:
		default:
			var number int64
			if number, err = strconv.ParseInt(o.Args[i], 10, 64); err == nil && number < 0 {
				err = fmt.Errorf("%d is negative", number)
			}
		}
		if err != nil {
			return fmt.Errorf("%v: %w", o, err)
		}
	}
	return nil
}
