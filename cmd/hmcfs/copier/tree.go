package copier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// tree copies one file, symbolic link or directory. After an interrupt it does nothing.
func (c *copier) tree(ctx context.Context, j job) {
	switch {
	case ctx.Err() != nil:
		c.ended(File{Source: j.source, Target: j.target, Err: &interruptedError{j.source, "it was not started"}})
	case j.info.IsDir():
		c.directory(ctx, j)
	case j.info.Mode()&fs.ModeSymlink != 0:
		c.symlink(j)
	case j.info.Mode().IsRegular():
		c.ended(c.file(ctx, j))
	default:
		c.ended(File{Source: j.source, Target: j.target, Err: fmt.Errorf("%s is neither file, directory nor link; it is skipped", j.source)})
	}
}

// interruptedError is the error of a copy that the user interrupted. It matches
// context.Canceled.
type interruptedError struct{ source, left string }

// Error describes what is left of the target.
func (e *interruptedError) Error() string {
	return fmt.Sprintf("copy %s: interrupted; %s", e.source, e.left)
}

// Is makes errors.Is(err, context.Canceled) true.
func (e *interruptedError) Is(target error) bool { return target == context.Canceled }

// directory creates the directory and copies its contents. Its mode is set at the end, so
// that one without write permission can be filled.
func (c *copier) directory(ctx context.Context, j job) {
	fault := func(err error) {
		c.ended(File{Source: j.source, Target: j.target, Err: err})
	}
	err := os.Mkdir(j.target, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		fault(err)
		return
	}
	entries, err := os.ReadDir(j.source)
	if err != nil {
		fault(err)
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			fault(err)
			continue
		}
		c.tree(ctx, job{source: filepath.Join(j.source, e.Name()), target: filepath.Join(j.target, e.Name()), info: info})
	}
	if made {
		if err := os.Chmod(j.target, j.info.Mode().Perm()); err != nil {
			fault(err)
		}
	}
}

// symlink recreates a link inside a tree. A link that was named as a source was followed
// before.
func (c *copier) symlink(j job) {
	f := File{Source: j.source, Target: j.target}
	text, err := os.Readlink(j.source)
	if err == nil {
		err = os.Symlink(text, j.target)
	}
	if errors.Is(err, fs.ErrExist) {
		if now, rerr := os.Readlink(j.target); rerr == nil && now == text {
			err = nil
		}
	}
	if f.Err = err; err != nil {
		c.ended(f)
	}
}
