package lint

import (
	"go/ast"
	"go/build/constraint"
	"maps"
	"path"
	"slices"
	"strings"
)

// checkPackageComment finds packages without a package comment, with several, or with one in an
// unexpected file.
func checkPackageComment(t *Tree) []Offence {
	packages := make(map[string][]*File)
	for _, f := range t.Files {
		if !f.Test {
			packages[f.Dir] = append(packages[f.Dir], f)
		}
	}
	var out []Offence
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		out = append(out, packageComment(packages[dir])...)
	}
	return out
}

// packageComment checks the files of one package.
func packageComment(files []*File) []Offence {
	name := files[0].Syntax.Name.Name
	home, start := "doc.go", "Package "+name+" "
	if name == "main" {
		home, start = "main.go", "" // a command is described by its own name
	}
	var out []Offence
	found := false
	for _, f := range files {
		doc := f.Syntax.Doc
		switch {
		case doc == nil:
		case path.Base(f.Path) != home:
			out = append(out, f.offence(doc.Pos(), "the package comment belongs into %s", home))
		case !strings.HasPrefix(doc.Text(), start):
			out = append(out, f.offence(doc.Pos(), "the package comment must begin with %q", start))
		default:
			found = true
		}
	}
	if !found && len(out) == 0 {
		out = append(out, files[0].offence(files[0].Syntax.Package, "package %s has no comment in a %s", name, home))
	}
	return out
}

// checkExportedComment finds exported names without a comment.
func checkExportedComment(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if f.Test || f.Syntax.Name.Name == "main" {
			return nil
		}
		var out []Offence
		for _, d := range f.Syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
					out = append(out, f.offence(d.Pos(), "%s has no comment", d.Name.Name))
				}
			case *ast.GenDecl:
				out = append(out, f.undocumented(d)...)
			}
		}
		return out
	})
}

// exportedReceiver reports whether a method is visible outside its package; a function always
// is.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// undocumented finds exported names of a declaration without a comment. The comment of a group
// of constants or variables covers all of them; each type needs its own.
func (f *File) undocumented(d *ast.GenDecl) []Offence {
	var out []Offence
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
				out = append(out, f.offence(s.Pos(), "%s has no comment", s.Name.Name))
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					out = append(out, f.offence(n.Pos(), "%s has no comment", n.Name))
				}
			}
		}
	}
	return out
}

// checkBuildTags finds build tags that are neither a platform nor
// "invariants" or "race": features are chosen at run time.
func checkBuildTags(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		var out []Offence
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				if !constraint.IsGoBuild(c.Text) && !constraint.IsPlusBuild(c.Text) || c.Pos() > f.Syntax.Package {
					continue
				}
				out = append(out, f.tags(c)...)
			}
		}
		return out
	})
}

// tags finds tags in a build constraint that are not allowed.
func (f *File) tags(c *ast.Comment) []Offence {
	expr, err := constraint.Parse(c.Text)
	if err != nil {
		return []Offence{f.offence(c.Pos(), "build constraint: %v", err)}
	}
	var out []Offence
	expr.Eval(func(tag string) bool {
		if tag != "invariants" && tag != "race" && !platform(tag) {
			out = append(out, f.offence(c.Pos(), "build tag %q: features are chosen at run time", tag))
		}
		return true
	})
	return out
}

// platform reports whether a tag is an operating system or architecture for which this may be
// built.
func platform(tag string) bool {
	return slices.Contains([]string{
		"unix", "linux", "darwin", "freebsd", "windows",
		"amd64", "arm64", "loong64", "ppc64le", "riscv64", "s390x",
	}, tag)
}

// The maximum numbers of lines of files and functions.
const (
	maxFileLines = 800
	maxFuncLines = 80
)

// checkSize finds files and functions that are too long. Lines of a function that contain only a
// comment don't count.
func checkSize(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		var out []Offence
		if n := f.line(f.Syntax.FileEnd); n > maxFileLines {
			out = append(out, f.offence(f.Syntax.Package, "%d lines are more than %d", n, maxFileLines))
		}
		if f.Test {
			return out
		}
		comments := f.commentLines()
		for _, d := range f.Syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			n := 0
			for line := f.line(fn.Body.Lbrace) + 1; line < f.line(fn.Body.Rbrace); line++ {
				if !comments[line] {
					n++
				}
			}
			if n > maxFuncLines {
				out = append(out, f.offence(fn.Pos(), "%s: %d lines are more than %d", fn.Name.Name, n, maxFuncLines))
			}
		}
		return out
	})
}

// maxMethods is the maximum number of methods of a type: one with more should be several types.
const maxMethods = 90

// checkMethods finds types of the product with too many methods; those of embedded types don't
// count.
func checkMethods(t *Tree) []Offence {
	type receiver struct{ dir, name string }
	found := map[receiver]int{}
	return t.each(func(f *File) []Offence {
		if f.Test {
			return nil
		}
		var out []Offence
		for _, d := range f.Syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			of := receiver{f.Dir, receiverOf(fn)}
			if found[of]++; found[of] == maxMethods+1 {
				out = append(out, f.offence(fn.Pos(), "%s has more than %d methods", of.name, maxMethods))
			}
		}
		return out
	})
}

// receiverOf returns the name of a method's type.
func receiverOf(fn *ast.FuncDecl) string {
	of := fn.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// commentLines returns the lines that contain only a comment.
func (f *File) commentLines() map[int]bool {
	lines := strings.Split(string(f.Data), "\n")
	out := make(map[int]bool)
	for _, group := range f.Syntax.Comments {
		for n := f.line(group.Pos()); n <= f.line(group.End()); n++ {
			text := strings.TrimSpace(lines[n-1])
			out[n] = strings.HasPrefix(text, "//") || n > f.line(group.Pos()) || strings.HasPrefix(text, "/*")
		}
	}
	return out
}
