package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// skipCode is the exit status of a recipe that lacks a package or a card.
const skipCode = 77

// recipeChecks runs the programs of docs/recipes.md with the machine's own NumPy, CuPy and
// PyTorch.
func (s *suite) recipeChecks(ctx context.Context) {
	recipes, err := filepath.Glob(filepath.Join(s.opts.tools, "recipes", "*.py"))
	if err == nil && len(recipes) == 0 {
		err = errors.New("the bundle has none")
	}
	if err != nil {
		s.fail(ctx, "recipes", err)
		return
	}
	for _, path := range recipes {
		name := strings.TrimSuffix(filepath.Base(path), ".py")
		s.check(ctx, "recipe "+name, func(ctx context.Context) (string, error) { return s.recipe(ctx, path, name) })
	}
}

// recipe runs one program on a file.
func (s *suite) recipe(ctx context.Context, path, name string) (string, error) {
	python, file := "python3", s.hostPath(name)
	switch pkg, _, _ := strings.Cut(name, "_"); {
	case pkg == "numpy":
		python = kit.Python()
	case s.device.family == "cuda":
		file = s.path(name)
	default:
		return "", skip("%s is no card of %s's", s.device.name, pkg)
	}
	if _, err := exec.LookPath(python); err != nil {
		return "", skip("%v", err)
	}
	cmd := system(ctx, python, path, file)
	// A recipe calls hmcfs by name.
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
		"PATH="+filepath.Dir(s.opts.hmcfs)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	defer func() {
		_ = endExport(file) // most exports have ended with the program
		_ = remove(file)
	}()
	said := oneLine(string(out))
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == skipCode {
		return "", skip("%s", said)
	}
	if err == nil && !strings.Contains(said, ": ok, ") {
		err = errors.New("it does not say that all is well")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return said, nil
}
