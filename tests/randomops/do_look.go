package randomops

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func doStat(r *runner, o Op) Step {
	var st unix.Stat_t
	err := unix.Lstat(r.path(o.Args[0]), &st)
	return answer(err, "%s", facts(&st))
}

func doFstat(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		return answer(err, "%s", facts(&st))
	})
}

// facts returns the attributes on which both sides must agree. The size of a directory
// depends on the filesystem.
func facts(st *unix.Stat_t) string {
	text := fmt.Sprintf("mode %o, %d links, owner %d:%d", st.Mode, st.Nlink, st.Uid, st.Gid)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		text += fmt.Sprintf(", %d bytes", st.Size)
	}
	return text
}

// doTree describes everything below A and B, sorted.
func doTree(r *runner, _ Op) Step {
	var lines []string
	for _, top := range []struct{ name, dir string }{{"A", r.target.A}, {"B", r.target.B}} {
		err := filepath.WalkDir(top.dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if path == top.dir {
				return nil
			}
			line, err := describe(path)
			lines = append(lines, below(top.name, top.dir, path)+": "+line)
			return err
		})
		if err != nil {
			lines = append(lines, fmt.Sprintf("%s: %s", top.name, errnoName(err)))
		}
	}
	return Step{Text: strings.Join(lines, "\n")}
}

// describe returns everything that can be observed of one name.
func describe(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	text := facts(&st)
	names, err := xattrNames(path)
	if err != nil {
		return text, err
	}
	for _, name := range names {
		value, err := xattr(path, name)
		if err != nil {
			return text, err
		}
		text += fmt.Sprintf(", %s=%x", name, value)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlink(path, target)
		return text + " to " + string(target[:max(n, 0)]), err
	case unix.S_IFREG:
		sum, err := contentSum(path)
		return text + ", content " + sum, err
	}
	return text, nil
}

// contentSum returns a checksum of a file's content, read to its end.
func contentSum(path string) (string, error) {
	fd, err := again(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	content, err := readAll(fd)
	h := fnv.New64a()
	_, _ = h.Write(content)
	return fmt.Sprintf("%d bytes, sum %016x", len(content), h.Sum64()), err
}

// readAll reads a file from its beginning.
func readAll(fd int) ([]byte, error) {
	var out []byte
	buf := make([]byte, 1<<20)
	for {
		n, err := again(func() (int, error) { return unix.Pread(fd, buf, int64(len(out))) })
		if err != nil || n == 0 {
			return out, err
		}
		out = append(out, buf[:n]...)
	}
}

// whole returns the content of a slot's file at the end of a program; the file may have no
// name.
func (r *runner) whole(slot int) Step {
	return r.with(slot, func(fd int) Step {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return answer(err, "")
		}
		data, err := readAll(fd)
		if errors.Is(err, unix.EBADF) { // open for writing only
			err = nil
		}
		s := answer(err, "handle %d: %s", slot, facts(&st))
		s.Data = data
		return s
	})
}

// doHoles checks the layout of a file as reported by lseek, from its beginning to its end.
// Stores through maps are written back first, because lseek asks the filesystem and
// bypasses the page cache.
func doHoles(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		if err := unix.Fsync(fd); err != nil {
			return answer(err, "")
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return answer(err, "")
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return answer(nil, "not a regular file")
		}
		err := followHoles(fd, st.Size)
		_, beyond := unix.Seek(fd, st.Size, unix.SEEK_DATA)
		_, seekErr := unix.Seek(fd, 0, unix.SEEK_SET)
		return answer(errors.Join(err, seekErr), "%d bytes of data and holes, beyond %v", st.Size, beyond)
	})
}

func followHoles(fd int, size int64) error {
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data = size
		} else if err != nil {
			return err
		}
		if data < at || data > size {
			return fmt.Errorf("SEEK_DATA from %d of %d found %d", at, size, data)
		}
		if err = zeros(fd, at, data); err != nil || data == size {
			return err
		}
		if at, err = unix.Seek(fd, data, unix.SEEK_HOLE); err != nil {
			return err
		}
		if at <= data || at > size {
			return fmt.Errorf("SEEK_HOLE from %d of %d found %d", data, size, at)
		}
	}
	return nil
}

// zeros checks that a hole reads as zeros, unless the handle can't read.
func zeros(fd int, from, to int64) error {
	buf := make([]byte, to-from)
	n, err := again(func() (int, error) { return unix.Pread(fd, buf, from) })
	switch {
	case errors.Is(err, unix.EBADF):
		return nil
	case err != nil:
		return err
	case n != len(buf):
		return fmt.Errorf("hole %d to %d: read %d bytes", from, to, n)
	case len(bytes.TrimLeft(buf, "\x00")) > 0:
		return fmt.Errorf("hole %d to %d is not zeros", from, to)
	}
	return nil
}

// xattrNames returns the names of the user attributes, sorted.
func xattrNames(path string) ([]string, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.hmc.") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func xattr(path, name string) ([]byte, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Lgetxattr(path, name, buf)
	return buf[:max(n, 0)], err
}
