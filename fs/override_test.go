package fs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// TestEveryMethodIsOverridden finds the methods of filesystem in the source, including those
// of unsupported: inherited methods of go-fuse would answer ENOSYS.
func TestEveryMethodIsOverridden(t *testing.T) {
	own := map[string]bool{}
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, decl := range tree.Decls {
			for _, receiver := range []string{"filesystem", "unsupported"} {
				if name, ok := methodOf(decl, receiver); ok {
					own[name] = true
				}
			}
		}
	}
	for method := range reflect.TypeFor[fuse.RawFileSystem]().Methods() {
		if !own[method.Name] {
			t.Errorf("filesystem does not override %s", method.Name)
		}
	}
}

// methodOf returns the name of a method of *receiver.
func methodOf(decl ast.Decl, receiver string) (string, bool) {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok || fn.Recv == nil {
		return "", false
	}
	star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return "", false
	}
	name, ok := star.X.(*ast.Ident)
	return fn.Name.Name, ok && name.Name == receiver
}
