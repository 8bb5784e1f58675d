package copier

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// facts returns the names of the extended attributes that describe tensors.
func facts() []string { return []string{"user.hmc.dtype", "user.hmc.shape", "user.hmc.blobs"} }

// between copies the content of a file of which one side is not reached through the kernel: by
// the tree itself if both sides are of it, else through buffers.
func (c *copier) between(ctx context.Context, j job, out *File) error {
	made, err := c.clear(j)
	if err != nil {
		return err
	}
	inner, is := j.source.tree.(Inner)
	if is = is && j.source.tree == j.target.tree; is {
		out.Bytes, err = inner.Copy(ctx, j.source.name, j.target.name)
		c.moved(out.Bytes)
	} else {
		out.Bytes, err = c.stream(ctx, j)
	}
	if err == nil && j.info.Mode().IsRegular() {
		err = c.settle(j)
	}
	if err == nil {
		if is {
			copyFacts(inner, j)
		}
		out.Path = pathBetween(j)
		return nil
	}
	left := j.target.text + " is removed"
	if made {
		_ = j.target.tree.Remove(j.target.name) // the error that led here is reported
	} else {
		_ = j.target.tree.Truncate(j.target.name, out.Bytes)
		left = fmt.Sprintf("%s is truncated to the %d bytes that were copied", j.target.text, out.Bytes)
	}
	if ctx.Err() != nil {
		err = &interruptedError{j.source.text, left}
	}
	return err
}

// clear checks the target, creates it or empties it; made is set if it did not exist.
func (c *copier) clear(j job) (made bool, err error) {
	const create = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	open := func(flag int) error {
		f, failure := j.target.tree.Open(j.target.name, flag, 0o600)
		if failure != nil {
			return failure
		}
		return f.Close()
	}
	if err = open(create); err == nil || c.opts.New || !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	// A link in the tree may lead to the source itself.
	if now, serr := j.target.stat(); serr == nil && j.target.same(now, j.source, j.info) {
		return false, usagef("%s and %s are the same file", j.source.text, j.target.text)
	}
	err = open(os.O_WRONLY | os.O_TRUNC)
	if err == nil || !c.opts.Force {
		return false, err
	}
	if err = j.target.tree.Remove(j.target.name); err == nil {
		err = open(create)
	}
	return err == nil, err
}

// stream copies through a buffer, and returns the number of bytes. Blocks of zeros become holes.
func (c *copier) stream(ctx context.Context, j job) (n int64, err error) {
	src, err := j.source.tree.Open(j.source.name, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = src.Close() }()
	dst, err := j.target.tree.Open(j.target.name, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	size := int64(c.opts.Buffer)
	if j.info.Size() > 0 {
		size = min(size, j.info.Size())
	}
	buffer, zeros := make([]byte, size), make([]byte, size)
	for err == nil {
		if err = ctx.Err(); err != nil {
			break
		}
		var got int
		got, err = io.ReadFull(src, buffer)
		if got > 0 && !bytes.Equal(buffer[:got], zeros[:got]) {
			if _, werr := dst.WriteAt(buffer[:got], n); werr != nil {
				err = werr
				break
			}
		}
		n += int64(got)
		c.moved(int64(got))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = dst.Truncate(n)
	}
	return n, cmp.Or(err, dst.Close())
}

func copyFacts(tree Inner, j job) {
	for _, name := range facts() {
		if value, err := tree.Attribute(j.source.name, name); err == nil {
			_ = tree.SetAttribute(j.target.name, name, value) // the bytes are copied, which matters more
		}
	}
}

// pathBetween returns the path that the bytes took: the target's if it is a file of hmcfs, or
// d2h for a source whose bytes came from a device.
func pathBetween(j job) string {
	if t, is := j.target.tree.(Inner); is {
		value, _ := t.Attribute(j.target.name, "user.hmc.path") // there is none for a path unknown
		return string(value)
	}
	if t, is := j.source.tree.(Inner); is {
		if device, err := t.Attribute(j.source.name, "user.hmc.device"); err == nil && string(device) != "host" {
			return "d2h"
		}
	}
	return ""
}
