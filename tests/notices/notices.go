package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is one module that is linked into the binary.
type module struct {
	Path, Version, Dir string

	// licences are the names of its licences, and texts the contents of its licence files.
	licences []string
	texts    []string
}

// goPath represents the toolchain's own library among the modules.
const goPath = "the Go standard library"

// source returns the address of the module's source text.
func (m module) source() string {
	if m.Path == goPath {
		return "https://go.dev/dl"
	}
	return "https://pkg.go.dev/" + m.Path + "@" + m.Version
}

// Notices returns the text of the notices for the module in a directory.
func Notices(ctx context.Context, dir string) (string, error) {
	all, err := linked(ctx, dir)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, m := range all {
		if m.licences, err = classify(m.texts); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
		}
	}
	if err = errors.Join(errs...); err != nil {
		return "", err
	}
	return render(all), nil
}

// linked returns the modules of the binary, sorted, with their licences' texts.
func linked(ctx context.Context, dir string) ([]*module, error) {
	found := map[string]*module{}
	folders := map[string][]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		packages, err := list(ctx, dir, arch)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if m := p.Module; m != nil && !m.Main {
				found[m.Path] = &module{Path: m.Path, Version: m.Version, Dir: m.Dir}
				folders[m.Path] = append(folders[m.Path], p.Dir)
			}
		}
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	goRoot := strings.TrimSpace(string(root))
	found[goPath] = &module{Path: goPath, Dir: goRoot}
	folders[goPath] = []string{goRoot}
	var out []*module
	for _, name := range slices.Sorted(maps.Keys(found)) {
		m := found[name]
		if m.texts, err = licenceTexts(m.Dir, folders[name]); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// listed is a package as described by the go command.
type listed struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// list returns the packages of the binary for an architecture.
func list(ctx context.Context, dir, arch string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Module", "./cmd/hmcfs")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	var problem strings.Builder
	cmd.Stderr = &problem
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w: %s", arch, err, problem.String())
	}
	var out []listed
	for in := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err = in.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list for %s: %w", arch, err)
		}
		out = append(out, p)
	}
}

// licenceFile matches the names of files that hold a licence or a notice.
var licenceFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|patents)([-._].*)?$`)

// licenceTexts reads the licences of a module: those in the folders of the linked packages,
// and in all folders above them.
func licenceTexts(root string, folders []string) ([]string, error) {
	seen := map[string]bool{}
	for _, folder := range folders {
		for ; !seen[folder] && (folder == root || strings.HasPrefix(folder, root+string(filepath.Separator))); folder = filepath.Dir(folder) {
			seen[folder] = true
		}
	}
	var texts []string
	for _, folder := range slices.Sorted(maps.Keys(seen)) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			if one := tidy(string(text)); !slices.Contains(texts, one) {
				texts = append(texts, one)
			}
		}
	}
	return texts, nil
}

// tidy removes insignificant differences between copies of one text: line endings, and
// surrounding empty lines.
func tidy(text string) string {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\f")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// known returns the licences that may be linked, with the words by which each is recognized.
// BSD-3-Clause comes before BSD-2-Clause, whose words it contains.
func known() []struct{ name, words string } {
	return []struct{ name, words string }{
		{"Apache-2.0", "Apache License Version 2.0, January 2004"},
		{"MPL-2.0", "Mozilla Public License, version 2.0"},
		{"MPL-2.0", "Mozilla Public License Version 2.0"},
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation"},
		{"BSD-3-Clause", "Neither the name of"},
		{"BSD-2-Clause", "Redistribution and use in source and binary forms, with or without modification, are permitted"},
		{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
		{"Unlicense", "This is free and unencumbered software released into the public domain"},
		{"CC0-1.0", "CC0 1.0 Universal"},
	}
}

// classify returns the names of a module's licences. An additional notice or patent grant has
// no name.
func classify(texts []string) ([]string, error) {
	var names []string
	for _, text := range texts {
		plain := strings.ToLower(strings.Join(strings.Fields(text), " "))
		for _, l := range known() {
			bsd2 := l.name == "BSD-2-Clause" && strings.Contains(plain, "neither the name of")
			if strings.Contains(plain, strings.ToLower(l.words)) && !bsd2 && !slices.Contains(names, l.name) {
				names = append(names, l.name)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("has no licence that is known; read it, and add it to the table in tests/notices where it may be linked")
	}
	return names, nil
}

const rule = "================================================================================"

// render writes a table of the modules, and each text once.
func render(all []*module) string {
	var out strings.Builder
	out.WriteString("hmcfs is linked with the work of others, listed here with its licences. Made by\n`make notices`; do not edit.\n\n")
	used := map[string][]string{}
	var texts []string
	for _, m := range all {
		fmt.Fprintf(&out, "%s\n    %s\n    %s\n", strings.TrimSpace(m.Path+" "+m.Version), strings.Join(m.licences, ", "), m.source())
		for _, text := range m.texts {
			if used[text] == nil {
				texts = append(texts, text)
			}
			used[text] = append(used[text], m.Path)
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", rule, strings.Join(used[text], "\n"), rule, text)
	}
	return out.String()
}
