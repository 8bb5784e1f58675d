package copier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// tree copies one file, symbolic link or directory. After an interrupt it does nothing.
func (c *copier) tree(ctx context.Context, j job) {
	switch {
	case ctx.Err() != nil:
		c.ended(File{Source: j.source.text, Target: j.target.text, Err: &interruptedError{j.source.text, "it was not started"}})
	case j.info.IsDir():
		c.directory(ctx, j)
	case j.info.Mode()&fs.ModeSymlink != 0:
		c.symlink(j)
	case j.info.Mode().IsRegular():
		c.ended(c.file(ctx, j))
	default:
		c.ended(File{Source: j.source.text, Target: j.target.text, Err: fmt.Errorf("%s is neither file, directory nor link; it is skipped", j.source.text)})
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
		c.ended(File{Source: j.source.text, Target: j.target.text, Err: err})
	}
	err := j.target.tree.Mkdir(j.target.name, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		fault(err)
		return
	}
	entries, err := j.source.tree.ReadDir(j.source.name)
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
		c.tree(ctx, job{source: j.source.in(e.Name()), target: j.target.in(e.Name()), info: info})
	}
	if made {
		if err := j.target.tree.Chmod(j.target.name, j.info.Mode().Perm()); err != nil {
			fault(err)
		}
	}
}

// symlink recreates a link inside a tree. A link that was named as a source was followed
// before.
func (c *copier) symlink(j job) {
	f := File{Source: j.source.text, Target: j.target.text}
	text, err := j.source.tree.ReadLink(j.source.name)
	if err == nil {
		err = j.target.tree.Symlink(text, j.target.name)
	}
	if errors.Is(err, fs.ErrExist) {
		if now, rerr := j.target.tree.ReadLink(j.target.name); rerr == nil && now == text {
			err = nil
		}
	}
	if f.Err = err; err != nil {
		c.ended(f)
	}
}
