package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// spreadMountOptions splits the -o lists: words for the kernel stay in "option", and words
// that name an option of the table become that option.
func spreadMountOptions(flags map[string][]Given, families []Family) (map[string][]Given, error) {
	out := maps.Clone(flags)
	if out == nil {
		out = map[string][]Given{}
	}
	lists := out["option"]
	delete(out, "option")
	byKey := map[string]*Option{}
	for _, p := range Table() {
		if p.Name != "option" {
			byKey[p.Key()] = p
		}
	}
	var faults []error
	for _, g := range lists {
		words, err := SplitMountOptions(g.Text)
		faults = append(faults, err)
		for i, w := range words {
			if err = spreadWord(out, byKey, g.Source, w); err != nil && i > 0 {
				err = unquoted(err, words[:i], w, families)
			}
			faults = append(faults, err)
		}
	}
	return out, errors.Join(faults...)
}

// unquoted adds to the error of a word that it may be meant as a parameter of the device before it: a
// comma separates options, unless it is in double quotes.
func unquoted(err error, before []string, word string, families []Family) error {
	key, _, is := strings.Cut(word, "=")
	at := len(before) - 1
	for at >= 0 && !strings.HasPrefix(before[at], "device=") {
		at--
	}
	known := slices.ContainsFunc(families, func(f Family) bool {
		return slices.ContainsFunc(f.Params, func(p Param) bool { return p.Name == key })
	})
	if !is || at < 0 || !known {
		return err
	}
	device := strings.TrimPrefix(strings.Join(append(slices.Clone(before[at:]), word), ","), "device=")
	return fmt.Errorf("%w; %s is a parameter of the device: write double quotes around it, and in a shell single ones around all: -o 'device=\"%s\"'", err, key, device)
}

func spreadWord(out map[string][]Given, byKey map[string]*Option, source, word string) error {
	key, value, hasValue := strings.Cut(word, "=")
	if slices.Contains(mountWords(), word) {
		out["option"] = append(out["option"], Given{Text: word, Source: source})
		return nil
	}
	if ignoredMountWord(word) {
		return nil
	}
	p := byKey[key]
	if p == nil {
		known := append(slices.Sorted(maps.Keys(byKey)), mountWords()...)
		return fmt.Errorf("%s: unknown mount option %q%s", source, key, didYouMean(key, known))
	}
	if !hasValue {
		if !p.IsBool() {
			return fmt.Errorf("%s: mount option %s needs a value: %s=…", source, key, key)
		}
		value = "true"
	}
	out[p.Name] = append(out[p.Name], Given{Text: value, Source: source})
	return nil
}

// ignoredMountWord reports whether a word of fstab is for mount(8) or systemd, and not for
// a filesystem.
func ignoredMountWord(word string) bool {
	if slices.Contains([]string{"defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev", "nofail"}, word) {
		return true
	}
	return strings.HasPrefix(word, "x-") || strings.HasPrefix(word, "X-") || strings.HasPrefix(word, "comment=") ||
		strings.HasPrefix(word, "user=")
}

// SplitMountOptions splits at the commas that are not inside double quotes, and removes the
// quotes.
func SplitMountOptions(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted := false
	for _, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ',' && !quoted:
			words = append(words, word.String())
			word.Reset()
		default:
			word.WriteRune(r)
		}
	}
	if quoted {
		return nil, fmt.Errorf("mount options %q: a double quote is not closed", text)
	}
	words = append(words, word.String())
	return slices.DeleteFunc(words, func(w string) bool { return w == "" }), nil
}
