package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// skipCode is the exit status of a recipe that lacks a package or a card.
const skipCode = 77

// TestRecipes runs the programs of docs/recipes.md: those for host memory here, those for a
// card on machines that have one.
func TestRecipes(t *testing.T) {
	kit.Check(t)
	devices := []string{"host,size=64MiB", "sim:0,size=64MiB"}
	where := map[string][]string{"numpy": {"host", "sim0"}}
	if kit.Missing("cuda") == nil {
		devices = append(devices, "cuda:0,size=1GiB")
		where["cupy"], where["torch"] = []string{"cuda0"}, []string{"cuda0"}
	}
	m := mnt.Mount(t, mnt.Options{Devices: devices})
	recipes, err := filepath.Glob("recipes/*.py")
	must(t, err)
	if len(recipes) == 0 {
		t.Fatal("there are no recipes")
	}
	for _, path := range recipes {
		name := strings.TrimSuffix(filepath.Base(path), ".py")
		pkg, _, _ := strings.Cut(name, "_")
		t.Run(name, func(t *testing.T) {
			python := "python3"
			if pkg == "numpy" {
				kit.Require(t, "numpy")
				python = kit.Python()
			}
			if len(where[pkg]) == 0 {
				t.Skip("the machine has no card for it")
			}
			for _, device := range where[pkg] {
				runRecipe(t, python, path, m.Path(device, name))
				runRecipe(t, python, path, m.Path(device, name)) // the first run has left nothing that prevents a second
			}
		})
	}
}

// runRecipe runs a recipe on a file.
func runRecipe(t *testing.T, python, recipe, file string) {
	t.Helper()
	cmd := exec.Command(python, recipe, file)
	// Python must not write compiled files into the source tree.
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == skipCode {
		t.Skipf("%s", out)
	}
	if err != nil || !strings.Contains(string(out), ": ok, ") {
		t.Errorf("%s %s: %v\n%s", recipe, file, err, out)
	}
}
