package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// keysText is the part of the help of every command for keys that explains their syntax.
const keysText = "A key has 1 to 255 of the characters A-Z a-z 0-9 and -_!@#%^*()+=:;. and a call at most 10000 keys.\n" +
	"With -, keys are read from standard input, one per line. Put a key that begins with - after --."

// pairsText is keysText for commands that take a path with a key.
const pairsText = keysText + "\n" +
	"The last = before the first / separates key and path: write a path that contains = as ./a=b."

// standardStream is the argument that stands for standard input, and the path that stands
// for standard output.
const standardStream = "-"

// pairing selects whether keys are followed by paths.
type pairing int

const (
	keysAlone pairing = iota
	pathsIfAny
	pathsAlways
)

// keyPath is a key with its path.
type keyPath struct{ key, path string }

// parsePair splits one argument into key and path.
func parsePair(text string, p pairing) (keyPath, error) {
	if p == keysAlone {
		return keyPath{key: text}, nil
	}
	before, _, _ := strings.Cut(text, "/")
	split := strings.LastIndexByte(before, '=')
	switch {
	case split < 0 && p == pathsAlways && strings.Trim(before, ".") != "" && strings.Contains(text, "="):
		return keyPath{}, fmt.Errorf("%q has a / before the =, and a key has no directories; write : instead of / in the key, as in %q",
			text, strings.Replace(text, before+"/", before+":", 1))
	case split < 0 && p == pathsAlways:
		return keyPath{}, fmt.Errorf("%q has no path; write KEY=PATH", text)
	case split < 0:
		return keyPath{key: text}, nil
	case split == len(text)-1:
		return keyPath{}, fmt.Errorf("%q has nothing after the =; write KEY=PATH", text)
	}
	return keyPath{key: text[:split], path: text[split+1:]}, nil
}

// keyArgs returns the keys of a call, from its arguments and from standard input, and
// refuses invalid ones.
func keyArgs(args []string, stdin io.Reader, p pairing) ([]keyPath, error) {
	texts := make([]string, 0, len(args))
	for i, arg := range args {
		if arg != standardStream {
			texts = append(texts, arg)
			continue
		}
		if slices.Contains(args[:i], standardStream) {
			return nil, usage(errors.New("- stands for standard input and can be given only once"))
		}
		lines, err := inputLines(stdin)
		if err != nil {
			return nil, err
		}
		texts = append(texts, lines...)
	}
	pairs := make([]keyPath, len(texts))
	for i, text := range texts {
		var err error
		if pairs[i], err = parsePair(text, p); err != nil {
			return nil, usage(err)
		}
	}
	if err := hetero.CheckKeys(keysOf(pairs)); err != nil {
		return nil, usage(err)
	}
	return pairs, nil
}

// inputLines reads the lines of standard input: not many more than a call may have keys, so
// that an excessive number is reported without being stored.
func inputLines(stdin io.Reader) ([]string, error) {
	var out []string
	in := bufio.NewScanner(stdin)
	for len(out) <= hetero.MaxKeys && in.Scan() {
		if in.Text() == "" {
			return nil, usage(fmt.Errorf("line %d of standard input is empty; each line must hold a key", len(out)+1))
		}
		out = append(out, in.Text())
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read the keys from standard input: %w", err)
	}
	return out, nil
}

// pathsOf returns the paths of pairs, some of which may be empty.
func pathsOf(pairs []keyPath) []string {
	return mapped(pairs, func(p keyPath) string { return p.path })
}

func keysOf(pairs []keyPath) []string {
	return mapped(pairs, func(p keyPath) string { return p.key })
}

// keyFlags are the flags of all commands for keys.
type keyFlags struct {
	mount  string
	asJSON *bool
}

// addKeyFlags adds --mount and --json to a command.
func addKeyFlags(cmd *cobra.Command) *keyFlags {
	f := &keyFlags{asJSON: addJSON(cmd)}
	addMountFlag(cmd, &f.mount)
	return f
}
