package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lines are those of a file that a change has written or stands beside.
type lines struct{ first, last int }

// git runs git and returns what it prints.
func git(ctx context.Context, args ...string) (string, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// baseOf returns the commit that the files are compared with.
func baseOf(ctx context.Context) (string, error) {
	head, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	for _, trunk := range []string{"main", "origin/main"} {
		if fork, failure := git(ctx, "merge-base", "HEAD", trunk); failure == nil && fork != head {
			return fork, nil
		}
	}
	base, err := git(ctx, "rev-parse", "HEAD~1")
	if err != nil {
		if shallow, failure := git(ctx, "rev-parse", "--is-shallow-repository"); failure == nil && shallow == "true" {
			return head, nil // a clone without history has nothing to compare with
		}
	}
	return base, err
}

// changedLines returns the changed lines of each file of tests, by its path
// from the top of the repository, which is the working directory.
func changedLines(ctx context.Context, base string) (map[string][]lines, error) {
	diff, err := git(ctx, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", base, "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	changed, err := parseDiff(diff)
	if err != nil {
		return nil, err
	}
	added, err := git(ctx, "ls-files", "--others", "--exclude-standard", "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(added) {
		changed[name] = []lines{{1, 1 << 30}}
	}
	return changed, nil
}

// hunk matches the head of a hunk: the lines that it leaves in the file.
var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// parseDiff returns the lines of each file that a diff without context names.
func parseDiff(diff string) (map[string][]lines, error) {
	changed := make(map[string][]lines)
	file := ""
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "diff --git ") {
			file = ""
		}
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok && file == "" {
			file = name
		}
		at := hunk.FindStringSubmatch(line)
		if at == nil || file == "" {
			continue // content, or a file that is gone
		}
		first, err := strconv.Atoi(at[1])
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
		n := 1
		if at[2] != "" {
			if n, err = strconv.Atoi(at[2]); err != nil {
				return nil, fmt.Errorf("read %q: %w", line, err)
			}
		}
		// Where lines were only taken away, the two around them are touched.
		l := lines{first, first + n - 1}
		if n == 0 {
			l.last = first + 1
		}
		changed[file] = append(changed[file], l)
	}
	return changed, nil
}

// testsOf returns the tests that changes touch, by the directory of their
// package.
func testsOf(changed map[string][]lines) (map[string][]string, error) {
	byDir := make(map[string][]string)
	for file := range changed {
		dir := path.Dir(file)
		byDir[dir] = append(byDir[dir], path.Base(file))
	}
	out := make(map[string][]string)
	for dir, files := range byDir {
		p, err := parsePackage(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found := make(map[string]bool)
		for _, file := range files {
			for _, test := range p.touched(file, changed[path.Join(dir, file)]) {
				found[test] = true
			}
		}
		if len(found) > 0 {
			out[dir] = slices.Sorted(maps.Keys(found))
		}
	}
	return out, nil
}

// declaration is something that a file of tests declares.
type declaration struct {
	file  string
	names []string
	// uses are all identifiers in it.
	uses map[string]bool
	at   lines
	test bool
}

// tests are the declarations of a directory's files of tests.
type tests []declaration

// parsePackage reads the files of tests of a directory.
func parsePackage(dir string) (tests, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var p tests
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
				decl.at = lines{positions.Position(d.Pos()).Line, positions.Position(d.End()).Line}
				p = append(p, decl)
			}
		}
	}
	return p, nil
}

// testName matches what -run chooses from.
var testName = regexp.MustCompile(`^(Test|Fuzz|Example)($|[^a-z])`)

// read returns what a declaration declares and uses, unless it is an import.
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
		if id, ok := n.(*ast.Ident); ok {
			out.uses[id.Name] = true
		}
		return true
	})
	return out, true
}

// touched returns the tests that changed lines of a file touch: those of the
// file, or of all files where it has none.
func (p tests) touched(file string, changed []lines) []string {
	here := slices.ContainsFunc(p, func(d declaration) bool { return d.file == file && d.test })
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
		if d.file == file && slices.ContainsFunc(changed, func(l lines) bool { return l.first <= d.at.last && l.last >= d.at.first }) {
			add(i)
		}
	}
	for more := true; more; {
		more = false
		for i, d := range p {
			if !reached[i] && (!here || d.file == file) && uses(d, names) {
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

// uses says whether a declaration uses one of some names.
func uses(d declaration, names map[string]bool) bool {
	for name := range names {
		if d.uses[name] {
			return true
		}
	}
	return false
}
