package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Module is the import path of the checked tree.
const Module = "github.com/hmcfs/hmcfs"

// Tree is the source tree: parsed Go files, and the text of all other files.
type Tree struct {
	Files []*File
	Texts []Text
}

// Text is the text of a file, for searches by line. Go files are included.
type Text struct {
	Path string
	Data []byte
}

// File is one Go file.
type File struct {
	Path   string // from the root, with slashes
	Dir    string // its folder from the root; "." for the root
	Test   bool   // named _test.go
	Syntax *ast.File
	Data   []byte

	fset *token.FileSet
}

// Import is one import of a file.
type Import struct {
	Path string
	Pos  token.Pos
}

// largestText bounds the size of searched files, in bytes: larger files are data.
const largestText = 2 << 20

// Load reads a tree. It skips git's own files, build outputs, and nested modules, whose packages
// this module cannot import.
func Load(fsys fs.FS) (*Tree, error) {
	t := new(Tree)
	fset := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(fsys, name)
		}
		if !d.Type().IsRegular() || name == ".git" { // a file in linked worktrees
			return nil
		}
		return t.add(fsys, fset, name)
	})
	return t, err
}

// enter decides whether the walk enters a directory.
func enter(fsys fs.FS, name string) error {
	if slices.Contains([]string{".git", "bin", "dist"}, name) {
		return fs.SkipDir
	}
	if name == "." {
		return nil
	}
	if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// add reads one file.
func (t *Tree) add(fsys fs.FS, fset *token.FileSet, name string) error {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return err
	}
	if info.Size() > largestText {
		return nil
	}
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	if bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return nil
	}
	t.Texts = append(t.Texts, Text{Path: name, Data: data})
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return nil
	}
	syntax, err := parser.ParseFile(fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	t.Files = append(t.Files, &File{
		Path: name, Dir: path.Dir(name), Test: strings.HasSuffix(name, "_test.go"),
		Syntax: syntax, Data: data, fset: fset,
	})
	return nil
}

// each collects the offences of every file.
func (t *Tree) each(check func(*File) []Offence) []Offence {
	var out []Offence
	for _, f := range t.Files {
		out = append(out, check(f)...)
	}
	return out
}

// line returns the line of a position.
func (f *File) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// layer returns the first directory of the file's path, or "" for the root.
func (f *File) layer() string { return layerOf(f.Dir) }

// layerOf returns the first directory of a path relative to the root.
func layerOf(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	if first == "." {
		return ""
	}
	return first
}

// imports lists what the file imports.
func (f *File) imports() []Import {
	out := make([]Import, 0, len(f.Syntax.Imports))
	for _, spec := range f.Syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			p = spec.Path.Value // the parser has seen to it that this can't be
		}
		out = append(out, Import{Path: p, Pos: spec.Pos()})
	}
	return out
}

// ours returns the directory of an import of this module.
func (i Import) ours() (dir string, ok bool) {
	if i.Path == Module {
		return ".", true
	}
	return strings.CutPrefix(i.Path, Module+"/")
}

// within reports whether the import is the package or one below it.
func (i Import) within(pkg string) bool {
	return i.Path == pkg || strings.HasPrefix(i.Path, pkg+"/")
}

// within reports whether a directory is parent or one below it.
func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

// inspect walks the syntax of a file.
func (f *File) inspect(visit func(ast.Node)) {
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		if n != nil {
			visit(n)
		}
		return true
	})
}

// importName returns the name under which the file refers to an imported package, or "" if it
// does not import it.
func (f *File) importName(pkg string) string {
	for _, spec := range f.Syntax.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// uses calls found for each use of one of the names of a package: a call, or the function as a
// value. Without names, any name matches.
func (f *File) uses(pkg string, names []string, found func(pos token.Pos, name string)) {
	local := f.importName(pkg)
	if local == "" || local == "_" {
		return
	}
	f.inspect(func(n ast.Node) {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return
		}
		id, ok := sel.X.(*ast.Ident)
		if ok && id.Name == local && (len(names) == 0 || slices.Contains(names, sel.Sel.Name)) {
			found(sel.Pos(), path.Base(pkg)+"."+sel.Sel.Name)
		}
	})
}
