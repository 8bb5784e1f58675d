package copier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// gather creates the directories and links of a tree, and adds its files to the jobs. After an
// interrupt it does nothing.
func (c *copier) gather(ctx context.Context, j job) {
	switch {
	case ctx.Err() != nil:
		c.failed(j, &interruptedError{j.source.text, "it was not started"})
	case j.info.IsDir():
		c.directory(ctx, j)
	case j.info.Mode()&fs.ModeSymlink != 0:
		c.symlink(j)
	case j.info.Mode().IsRegular():
		c.regular(j)
	default:
		c.failed(j, fmt.Errorf("%s is neither file, directory nor link; it is skipped", j.source.text))
	}
}

// inode identifies a file with several names.
type inode struct{ dev, ino uint64 }

// link is a file whose target becomes another name of a target.
type link struct {
	job
	first spot
}

// regular adds a file to the jobs. In an archive, the second name of a file is linked later.
func (c *copier) regular(j job) {
	if c.targets != nil {
		at := written{j.target.tree, j.target.name}
		if c.targets[at] {
			c.failed(j, fmt.Errorf("%s is the target of another source; it is not overwritten with %s", j.target.text, j.source.text))
			return
		}
		c.targets[at] = true
	}
	sys, is := j.info.Sys().(*syscall.Stat_t)
	if c.opts.Archive && is && sys.Nlink > 1 {
		of := inode{sys.Dev, sys.Ino}
		if first, copied := c.linked[of]; copied && first.tree == j.target.tree {
			c.links = append(c.links, link{j, first})
			return
		}
		c.linked[of] = j.target
	}
	j.at = c.add()
	c.jobs = append(c.jobs, j)
}

// linkAll creates the links of files with several names.
func (c *copier) linkAll(ctx context.Context) {
	for _, l := range c.links {
		tree := l.target.tree
		err := tree.Link(l.first.name, l.target.name)
		if errors.Is(err, fs.ErrExist) && ctx.Err() == nil {
			if err = tree.Remove(l.target.name); err == nil {
				err = tree.Link(l.first.name, l.target.name)
			}
		}
		if err != nil {
			c.failed(l.job, err)
		}
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

// directory creates the directory and gathers its contents. Its mode is set at the end, so
// that one without write permission can be filled.
func (c *copier) directory(ctx context.Context, j job) {
	err := j.target.tree.Mkdir(j.target.name, 0o700)
	switch {
	case err == nil:
		c.made = append(c.made, j)
	case !errors.Is(err, fs.ErrExist):
		c.failed(j, err)
		return
	}
	entries, err := j.source.tree.ReadDir(j.source.name)
	if err != nil {
		c.failed(j, err)
		return
	}
	into := deviceOf(j.target)
	for n, e := range entries {
		if ctx.Err() != nil {
			c.failed(j, &interruptedError{j.source.text, "not all of it was copied"})
			return
		}
		one := job{source: j.source.in(e.Name()), target: j.target.in(e.Name()), into: into, route: n == 0}
		if one.info, err = e.Info(); err != nil {
			c.failed(one, err)
			continue
		}
		c.gather(ctx, one)
	}
}

// finishDirectories sets the modes of the directories that were created, and what else is kept, the
// deepest first.
func (c *copier) finishDirectories() {
	for _, j := range slices.Backward(c.made) {
		if err := c.settle(j); err != nil {
			c.failed(j, err)
		}
	}
}

// symlink recreates a link inside a tree. A link that was named as a source was followed
// before.
func (c *copier) symlink(j job) {
	text, err := j.source.tree.ReadLink(j.source.name)
	if err == nil {
		err = j.target.tree.Symlink(text, j.target.name)
	}
	if errors.Is(err, fs.ErrExist) {
		if now, rerr := j.target.tree.ReadLink(j.target.name); rerr == nil && now == text {
			err = nil
		}
	}
	if err == nil {
		err = c.settle(j)
	}
	if err != nil {
		c.failed(j, err)
	}
}
