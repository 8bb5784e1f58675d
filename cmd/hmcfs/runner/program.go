package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// findProgram returns the file that a shell would execute.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		cause, out := err, "check its path"
		if e, ok := errors.AsType[*exec.Error](err); ok {
			cause = e.Err
		}
		if pe, ok := errors.AsType[*os.PathError](cause); ok {
			cause = pe.Err
		}
		if errors.Is(err, os.ErrPermission) {
			out = "make it executable: chmod +x " + name
		}
		return "", &programError{text: fmt.Sprintf("program %q: %v; %s", name, cause, out), err: err}
	}
	return filepath.Abs(path)
}

// programError is ErrProgram, with the text of its cause.
type programError struct {
	text string
	err  error
}

func (e *programError) Error() string { return e.text }

func (e *programError) Unwrap() []error { return []error{ErrProgram, e.err} }
