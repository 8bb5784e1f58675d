package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root finds the folder of this module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+Module+"\n") {
			return dir
		}
	}
	t.Fatal("not inside the module " + Module)
	return ""
}

// TestTree runs every rule on this tree.
func TestTree(t *testing.T) {
	tree, err := Load(os.DirFS(root(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Files) == 0 {
		t.Fatal("found no Go files: the rules would pass on nothing")
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, o := range sorted(rule.Check(tree)) {
				t.Errorf("%s: %s", o, rule.Name)
			}
		})
	}
}

// TestBinaryDependencies asks the go command what the binary is linked from:
// the rule "shipped" follows the imports of the sources, this the real build.
func TestBinaryDependencies(t *testing.T) {
	dir := root(t)
	if _, err := os.Stat(filepath.Join(dir, "cmd", "hmcfs")); err != nil {
		t.Skip("there is no binary yet")
	}
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,CgoFiles", "./cmd/hmcfs")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			CgoFiles   []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.CgoFiles) > 0 {
			t.Errorf("%s is built with cgo", p.ImportPath)
		}
		if p.ImportPath == "testing" {
			t.Errorf("the binary is linked with the package testing")
		}
		if dir, ok := (Import{Path: p.ImportPath}).ours(); ok && layerOf(dir) == "tests" {
			t.Errorf("the binary is linked with %s, which is for tests only", dir)
		}
	}
}

// TestEveryRuleHasExamples keeps rules from being added without a proof that
// they find something.
func TestEveryRuleHasExamples(t *testing.T) {
	var names []string
	for _, rule := range Rules() {
		if slices.Contains(names, rule.Name) {
			t.Errorf("two rules are named %s", rule.Name)
		}
		names = append(names, rule.Name)
		if len(examples()[rule.Name].bad) == 0 {
			t.Errorf("rule %s has no bad example", rule.Name)
		}
	}
	for name := range examples() {
		if !slices.Contains(names, name) {
			t.Errorf("there are examples of %s, which is no rule", name)
		}
	}
}
