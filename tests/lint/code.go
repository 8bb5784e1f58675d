package lint

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// library reports whether a file is product code below the commands: such code must not end the
// process, read the environment or print. A conformance suite is a test in the form of a
// package.
func (f *File) library() bool {
	_, layer := below()[f.layer()]
	return layer && f.layer() != "cmd" && !f.Test
}

// checkInit finds init functions: nothing may happen before main.
func checkInit(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		var out []Offence
		for _, d := range f.Syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				out = append(out, f.offence(fn.Pos(), "init function: call it by name"))
			}
		}
		return out
	})
}

// checkGlobals finds package variables that could hold state. A table that
// never changes may stay with a "//nolint:gochecknoglobals // reason".
func checkGlobals(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if f.Test {
			return nil
		}
		var out []Offence
		for _, d := range f.Syntax.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, s := range gen.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if !ok || f.harmless(gen, spec) {
					continue
				}
				out = append(out, f.offence(spec.Pos(), "%s: a package variable is state that all share", spec.Names[0].Name))
			}
		}
		return out
	})
}

// harmless reports whether a package variable is of one of the few allowed kinds.
func (f *File) harmless(gen *ast.GenDecl, spec *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{gen.Doc, spec.Doc, spec.Comment} {
		if commented(doc, "//go:embed ") || commented(doc, "//nolint:gochecknoglobals // ") {
			return true
		}
	}
	if f.layer() == "cmd" && len(spec.Names) == 1 && spec.Names[0].Name == "version" {
		return true // set by the linker
	}
	for i, name := range spec.Names {
		if name.Name == "_" {
			continue
		}
		if i >= len(spec.Values) || !f.constant(spec.Values[i]) {
			return false
		}
	}
	return true
}

// commented reports whether one of the comments begins with the text.
func commented(doc *ast.CommentGroup, start string) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, start)
	})
}

// constant reports whether a value is a sentinel error, possibly of another package, or a
// compiled pattern.
func (f *File) constant(value ast.Expr) bool {
	if alias, ok := value.(*ast.SelectorExpr); ok {
		return strings.HasPrefix(alias.Sel.Name, "Err")
	}
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok {
		return false
	}
	return slices.Contains([]string{"errors.New", "fmt.Errorf", "regexp.MustCompile"}, pkg.Name+"."+sel.Sel.Name)
}

// checkExit finds libraries that end the process or write to its log: those decisions are left
// to the commands. A panic with an error or a typed value is accepted for bugs; one with a
// string is an error that cannot be handled.
func checkExit(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if !f.library() {
			return nil
		}
		var out []Offence
		found := func(pos token.Pos, name string) {
			out = append(out, f.offence(pos, "%s: only a command may do that", name))
		}
		f.uses("log", []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln", "Print", "Printf", "Println", "SetOutput", "Default"}, found)
		f.uses("os", []string{"Exit"}, found)
		f.uses("syscall", []string{"Exit"}, found)
		f.uses("golang.org/x/sys/unix", []string{"Exit"}, found)
		f.uses("fmt", []string{"Print", "Printf", "Println"}, found)
		f.inspect(func(n ast.Node) {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return
			}
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				if fun.Name == "panic" && len(call.Args) == 1 && text(call.Args[0]) {
					out = append(out, f.offence(call.Pos(), "panic with a string: return an error"))
				}
			case *ast.SelectorExpr:
				if slices.Contains([]string{"Fatal", "Panic", "DPanic"}, fun.Sel.Name) {
					out = append(out, f.offence(call.Pos(), "%s: only a command may do that", fun.Sel.Name))
				}
			}
		})
		return out
	})
}

// text reports whether an expression is clearly a string.
func text(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (text(e.X) || text(e.Y))
	case *ast.ParenExpr:
		return text(e.X)
	case *ast.CallExpr:
		sel, ok := e.Fun.(*ast.SelectorExpr)
		return ok && strings.HasPrefix(sel.Sel.Name, "Sprint")
	}
	return false
}

// checkEnvironment finds libraries that read the environment or flags: they are configured by
// their options.
func checkEnvironment(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if !f.library() {
			return nil
		}
		var out []Offence
		found := func(pos token.Pos, name string) {
			out = append(out, f.offence(pos, "%s: options are passed, not looked up", name))
		}
		names := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Args"}
		f.uses("os", names, found)
		f.uses("syscall", names, found)
		f.uses("golang.org/x/sys/unix", names, found)
		f.uses("flag", nil, found)
		f.uses("github.com/spf13/pflag", nil, found)
		return out
	})
}

// checkZapGlobals finds uses of the global logger: a logger must be passed in options.
func checkZapGlobals(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		var out []Offence
		names := []string{"L", "S", "ReplaceGlobals", "RedirectStdLog", "RedirectStdLogAt"}
		f.uses("go.uber.org/zap", names, func(pos token.Pos, name string) {
			out = append(out, f.offence(pos, "%s: the logger comes by options", name))
		})
		return out
	})
}

// checkErrorText finds decisions that depend on the text of an error. Tests may check texts,
// since people read them.
func checkErrorText(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if f.Test || f.layer() == "tests" {
			return nil
		}
		var out []Offence
		found := func(e ast.Expr) {
			if errorText(e) {
				out = append(out, f.offence(e.Pos(), "decides by an error's text: use errors.Is or errors.As"))
			}
		}
		f.inspect(func(n ast.Node) {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					found(n.X)
					found(n.Y)
				}
			case *ast.SwitchStmt:
				found(n.Tag)
			case *ast.CallExpr:
				if searches(n.Fun) {
					for _, arg := range n.Args {
						found(arg)
					}
				}
			}
		})
		return out
	})
}

// errorText reports whether an expression is the text of an error.
func errorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 0 {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Error"
}

// searches reports whether a function searches a text.
func searches(fun ast.Expr) bool {
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if slices.Contains([]string{"MatchString", "FindString", "FindStringSubmatch"}, sel.Sel.Name) {
		return true
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "strings" && slices.ContainsFunc(
		[]string{"Contains", "HasPrefix", "HasSuffix", "Index", "EqualFold", "Cut", "Split"},
		func(p string) bool { return strings.HasPrefix(sel.Sel.Name, p) })
}

// checkSleep finds tests that sleep instead of waiting for an event.
func checkSleep(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if !f.Test && f.layer() != "tests" || within(f.Dir, "tests/kit") {
			return nil
		}
		var out []Offence
		f.uses("time", []string{"Sleep"}, func(pos token.Pos, name string) {
			out = append(out, f.offence(pos, "%s: wait with kit.Eventually", name))
		})
		return out
	})
}
