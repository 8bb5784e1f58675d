package main

import (
	"errors"
	"os"
	"slices"
)

// undo takes away what was set up. The zero value is ready.
type undo struct {
	steps []func() error
}

// later notes what close does; the last first.
func (u *undo) later(fn func() error) { u.steps = append(u.steps, fn) }

// folder makes a directory, which close removes.
func (u *undo) folder() (string, error) {
	dir, err := os.MkdirTemp("", "hmcfs-bench-")
	if err != nil {
		return "", err
	}
	u.later(func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// close takes everything away. Closing twice is harmless.
func (u *undo) close() error {
	var errs []error
	for _, fn := range slices.Backward(u.steps) {
		errs = append(errs, fn())
	}
	u.steps = nil
	return errors.Join(errs...)
}
