package measure

import (
	"errors"
	"os"
	"slices"
)

// Undo takes away what was set up. The zero value is ready.
type Undo struct {
	steps []func() error
}

// Later adds a step of Close; the last is done first.
func (u *Undo) Later(fn func() error) { u.steps = append(u.steps, fn) }

// Folder creates a directory, which Close removes.
func (u *Undo) Folder() (string, error) {
	dir, err := os.MkdirTemp("", "hmcfs-bench-")
	if err != nil {
		return "", err
	}
	u.Later(func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// Close takes everything away. Closing twice is harmless.
func (u *Undo) Close() error {
	var errs []error
	for _, fn := range slices.Backward(u.steps) {
		errs = append(errs, fn())
	}
	u.steps = nil
	return errors.Join(errs...)
}
