package testfiles

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Lines is a range of lines of a file, from First to Last inclusive, counted from 1.
type Lines struct{ First, Last int }

// declaration is a declaration in a test file.
type declaration struct {
	file  string
	names []string
	// uses holds all identifiers in it, and all pairs such as kit.Rounds.
	uses map[string]bool
	at   Lines
	test bool
}

// Package holds the declarations of the test files of a directory.
type Package []declaration

// Read reads the test files of a directory. The result is empty if there are none.
func Read(dir string) (Package, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var p Package
	positions := token.NewFileSet()
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(positions, filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("find tests: %w", err)
		}
		for _, d := range file.Decls {
			if decl, ok := read(d); ok {
				decl.file = e.Name()
				decl.at = Lines{positions.Position(d.Pos()).Line, positions.Position(d.End()).Line}
				p = append(p, decl)
			}
		}
	}
	return p, nil
}

// testName matches the names from which -run selects.
var testName = regexp.MustCompile(`^(Test|Fuzz|Example)($|[^a-z])`)

// read returns the names that a declaration declares and uses, unless it is an import.
func read(d ast.Decl) (declaration, bool) {
	out := declaration{uses: make(map[string]bool)}
	switch d := d.(type) {
	case *ast.FuncDecl:
		out.names = []string{d.Name.Name}
		out.test = d.Recv == nil && testName.MatchString(d.Name.Name) && d.Name.Name != "TestMain"
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return out, false
		}
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				out.names = append(out.names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					out.names = append(out.names, name.Name)
				}
			}
		}
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			out.uses[n.Name] = true
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok {
				out.uses[of.Name+"."+n.Sel.Name] = true
			}
		}
		return true
	})
	return out, true
}

// Touched returns the tests that use the changed lines of a file: tests in the file or, if it
// has none, in all files.
func (p Package) Touched(file string, changed []Lines) []string {
	here := slices.ContainsFunc(p, func(d declaration) bool { return d.file == file && d.test })
	return p.reached(
		func(d declaration) bool {
			return d.file == file && slices.ContainsFunc(changed, func(l Lines) bool { return l.First <= d.at.Last && l.Last >= d.at.First })
		},
		func(d declaration) bool { return !here || d.file == file },
	)
}

// Using returns the tests that use one of several identifiers, or pairs such as kit.Rounds,
// directly or indirectly.
func (p Package) Using(identifiers ...string) []string {
	return p.reached(
		func(d declaration) bool {
			return slices.ContainsFunc(identifiers, func(name string) bool { return d.uses[name] })
		},
		func(declaration) bool { return true },
	)
}

// reached returns the tests among the declarations for which first is true, and the tests that
// use one of these directly or indirectly, by declarations for which may is true.
func (p Package) reached(first, may func(declaration) bool) []string {
	reached := make([]bool, len(p))
	names := make(map[string]bool)
	add := func(i int) {
		reached[i] = true
		if !p[i].test {
			for _, name := range p[i].names {
				names[name] = true
			}
		}
	}
	for i, d := range p {
		if first(d) {
			add(i)
		}
	}
	for more := true; more; {
		more = false
		for i, d := range p {
			if !reached[i] && may(d) && uses(d, names) {
				add(i)
				more = true
			}
		}
	}
	var out []string
	for i, d := range p {
		if reached[i] && d.test {
			out = append(out, d.names[0])
		}
	}
	return out
}

// uses reports whether a declaration uses one of the names.
func uses(d declaration, names map[string]bool) bool {
	for name := range names {
		if d.uses[name] {
			return true
		}
	}
	return false
}
