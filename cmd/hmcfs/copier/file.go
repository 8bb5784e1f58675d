package copier

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

func (w *worker) file(ctx context.Context, j job) File {
	out := File{Source: j.source.text, Target: j.target.text}
	begun := time.Now()
	if !j.source.isLocal() || !j.target.isLocal() {
		out.Err = w.between(ctx, j, &out)
	} else if done, err := w.quick(ctx, j, &out); done {
		out.Err = err
	} else {
		out.Err = w.content(ctx, j, &out)
	}
	out.Seconds = time.Since(begun).Seconds()
	return out
}

// content copies the content of a file, and sets what out says about it.
func (c *copier) content(ctx context.Context, j job, out *File) error {
	src, err := os.Open(j.source.name)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	dst, made, err := c.target(j, info)
	if err != nil {
		return err
	}
	m := &mover{c: c, src: src, dst: dst, part: c.opts.part(info.Size())}
	m.shift = m.part.off
	err = m.run(ctx, info)
	out.Bytes, out.Ranged = m.done, m.ranged
	if err == nil && m.part == (segment{0, info.Size()}) {
		copyTensorFacts(src, dst)
	}
	if err == nil {
		err = c.finish(src, dst, info)
	}
	if err == nil {
		out.Path = c.pathTaken(src, dst)
	}
	left := ""
	if err != nil {
		left = giveUp(dst, made, m.consistent)
	}
	if err = cmp.Or(err, dst.Close()); err != nil && ctx.Err() != nil {
		err = &interruptedError{j.source.text, left}
	}
	return err
}

// target opens the file to write; made is set if it did not exist.
func (c *copier) target(j job, info fs.FileInfo) (dst *os.File, made bool, err error) {
	const create = os.O_RDWR | os.O_CREATE | os.O_EXCL
	dst, err = os.OpenFile(j.target.name, create, 0o600)
	if err == nil || c.opts.New || !errors.Is(err, fs.ErrExist) {
		return dst, err == nil, err
	}
	dst, err = os.OpenFile(j.target.name, os.O_RDWR, 0)
	if err != nil && errors.Is(err, fs.ErrPermission) {
		// Writing does not require permission to read.
		dst, err = os.OpenFile(j.target.name, os.O_WRONLY, 0)
	}
	if err != nil && c.opts.Force {
		if err = os.Remove(j.target.name); err != nil {
			return nil, false, err
		}
		dst, err = os.OpenFile(j.target.name, create, 0o600)
		return dst, err == nil, err
	}
	if err != nil {
		return nil, false, err
	}
	// A link in the tree may lead to the source itself, which must not be truncated before
	// it is read.
	if now, serr := dst.Stat(); serr != nil || os.SameFile(now, info) {
		return nil, false, errors.Join(usagef("%s and %s are the same file", j.source.text, j.target.text), dst.Close())
	}
	if err := dst.Truncate(0); err != nil {
		return nil, false, errors.Join(err, dst.Close())
	}
	return dst, false, nil
}

// giveUp removes a target that was created for this copy, and truncates any other to what
// was copied. It returns a text that says which.
func giveUp(dst *os.File, made bool, consistent int64) string {
	if !made {
		dst.Truncate(consistent) //nolint:errcheck // the error that led here is reported
		return fmt.Sprintf("%s is truncated to the %d bytes that were copied", dst.Name(), consistent)
	}
	named, err := os.Lstat(dst.Name())
	held, herr := dst.Stat()
	if err == nil && herr == nil && os.SameFile(named, held) {
		_ = os.Remove(dst.Name())
	}
	return dst.Name() + " is removed"
}

// copyTensorFacts copies the tensor attributes, if both files are on a mount.
func copyTensorFacts(src, dst *os.File) {
	for _, name := range facts() {
		if value := fileXattr(src, name); value != "" {
			unix.Fsetxattr(int(dst.Fd()), name, []byte(value), 0) //nolint:errcheck // an error means that the target is not an hmcfs file
		}
	}
}

// pathTaken returns the path that the bytes took, as hmcfs reports it for the target if
// that is on a mount, else for the source, whose bytes were copied to the host: those of
// the host tier by passthrough if the mount has it. It returns "" for no bytes, for files
// outside hmcfs, and for files from another node's tree, whose transport hmcfs nodes shows.
func (c *copier) pathTaken(src, dst *os.File) string {
	if fileXattr(dst, "user.hmc.device") != "" {
		return fileXattr(dst, "user.hmc.path")
	}
	switch device := fileXattr(src, "user.hmc.device"); {
	case device == "", ofAnotherNode(src):
		return ""
	case device == "host" && c.passthrough(src):
		return "passthrough"
	default:
		return "d2h"
	}
}

// ofAnotherNode reports whether a file of a mount is below nodes/, also if it was opened
// through a link of keys/.
func ofAnotherNode(f *os.File) bool {
	path := pathOf(f)
	if !strings.Contains(path, "/nodes/") {
		return false
	}
	m, found, err := place.MountOf(path)
	return err == nil && found && strings.HasPrefix(path, filepath.Join(m.MountPoint, "nodes")+"/")
}

// pathOf returns the current path of a file; "" if it cannot be determined.
func pathOf(f *os.File) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return ""
	}
	return path
}

// passthrough reports whether the kernel serves the host files of a file's mount directly.
// Each mount is asked only once.
func (c *copier) passthrough(f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	on, known := c.byKernel[st.Dev]
	if known {
		return on
	}
	m, found, err := place.MountOf(pathOf(f))
	if err != nil || !found {
		return false
	}
	var stats struct {
		Mount struct {
			Passthrough bool `json:"passthrough"`
		} `json:"mount"`
	}
	text, err := os.ReadFile(filepath.Join(m.MountPoint, ".hmcfs", "stats"))
	on = err == nil && json.Unmarshal(text, &stats) == nil && stats.Mount.Passthrough
	c.byKernel[st.Dev] = on
	return on
}

func fileXattr(f *os.File, name string) string {
	buf := make([]byte, 4096)
	n, err := unix.Fgetxattr(int(f.Fd()), name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// segment is a range of a file.
type segment struct{ off, end int64 }

// segments returns the ranges of a file that have data. A file without holes is one
// segment.
func segments(f *os.File, info fs.FileInfo) ([]segment, error) {
	size := info.Size()
	sys, ok := info.Sys().(*syscall.Stat_t)
	if size == 0 {
		return nil, nil
	}
	if !ok || sys.Blocks*512 >= size {
		return []segment{{0, size}}, nil
	}
	var out []segment
	for off := int64(0); off < size; {
		data, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return []segment{{0, size}}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for holes in %s: %w", f.Name(), err)
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("look for holes in %s: %w", f.Name(), err)
		}
		out = append(out, segment{data, min(hole, size)})
		off = hole
	}
	return out, nil
}
