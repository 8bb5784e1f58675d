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
		return "", &faultError{text: fmt.Sprintf("program %q: %v; %s", name, cause, out), class: errors.Join(ErrProgram, err)}
	}
	return filepath.Abs(path)
}
