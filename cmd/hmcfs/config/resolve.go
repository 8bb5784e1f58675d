package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Inputs are the sources of values.
type Inputs struct {
	// Flags holds the values given on the command line, by option name.
	Flags map[string][]Given
	// Getenv reads the environment; nil stands for an empty one.
	Getenv func(string) string
	// Files are read in order; later ones override earlier ones. See Files.
	Files []File
	// ReadFile reads one of the files; nil means os.ReadFile.
	ReadFile func(string) ([]byte, error)
	// Families are the device families of the program.
	Families []Family
}

// Given is one value as it was written, with its source.
type Given struct {
	Text string
	// Source is the text that `config show` prints, such as "flag --read-ahead".
	Source string
}

// Setting is one option with the source of its value.
type Setting struct {
	Option *Option
	Source string
}

// Settings are the values of all options, with their sources.
type Settings struct {
	Options
	List []Setting
}

// Resolve determines and checks every value. The error contains every fault of every
// source, one per line.
func Resolve(in Inputs) (*Settings, error) {
	if in.Getenv == nil {
		in.Getenv = func(string) string { return "" }
	}
	given := map[string][]Given{}
	var faults []error
	for _, f := range in.Files {
		values, err := f.read(in.ReadFile)
		faults = append(faults, err)
		maps.Copy(given, values)
	}
	for _, p := range Table() {
		if v := in.Getenv(p.Env()); v != "" {
			given[p.Name] = fromEnv(p, v)
		}
	}
	flags, err := absolute(in.Flags)
	faults = append(faults, err)
	flags, err = spreadMountOptions(flags, in.Families)
	faults = append(faults, err)
	maps.Copy(given, flags)
	s := &Settings{}
	for _, p := range Table() {
		setting, err := s.apply(p, given[p.Name])
		faults = append(faults, err)
		s.List = append(s.List, setting)
	}
	faults = append(faults, s.Validate(in.Families))
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return s, nil
}

// pathOptions returns the names of the options with a path that the daemon uses after it has left the directory in which
// it was started.
func pathOptions() []string {
	return []string{"state-dir", "runtime-dir", "log-file", "access-log", "topology"}
}

// absolute returns the flags with absolute paths: those given are relative to the working directory. Those of a config file,
// of the environment and of mount options stay: they are not written for one directory.
func absolute(flags map[string][]Given) (map[string][]Given, error) {
	flags = maps.Clone(flags)
	var faults []error
	for _, name := range pathOptions() {
		values := slices.Clone(flags[name])
		for i, v := range values {
			if v.Text == "" {
				continue
			}
			path, err := filepath.Abs(v.Text)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", v.Source, err))
			}
			values[i].Text = path
		}
		if len(values) > 0 {
			flags[name] = values
		}
	}
	return flags, errors.Join(faults...)
}

// apply sets one option from the values given, or from its default.
func (s *Settings) apply(p *Option, given []Given) (Setting, error) {
	if len(given) == 0 {
		if p.Default == "" {
			return Setting{Option: p, Source: "default"}, nil
		}
		return Setting{Option: p, Source: "default"}, p.set(&s.Options, []string{p.Default})
	}
	texts := make([]string, len(given))
	for i, g := range given {
		texts[i] = g.Text
	}
	source := given[len(given)-1].Source
	if err := p.set(&s.Options, texts); err != nil {
		// Use the default, so that the other checks can go on.
		if p.Default != "" {
			p.set(&s.Options, []string{p.Default}) //nolint:errcheck // a default is always valid
		}
		return Setting{}, fmt.Errorf("%s: %w", source, err)
	}
	return Setting{Option: p, Source: source}, nil
}

// fromEnv splits a variable: the items of a list are separated by spaces or semicolons, as
// device specifications contain commas.
func fromEnv(p *Option, value string) []Given {
	source := "environment " + p.Env()
	if !p.IsList() {
		return []Given{{Text: value, Source: source}}
	}
	var out []Given
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ';' || r == '\n' }) {
		out = append(out, Given{Text: part, Source: source})
	}
	return out
}
