package tests

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// openedFile is an open file of a door.
type openedFile interface {
	io.ReadWriteSeeker
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
}

// door is a way to the files of a daemon: the mount, or a session.
type door interface { //nolint:interfacebloat // they are the calls on files
	OpenFile(name string, flag int, perm fs.FileMode) (openedFile, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Mkdir(name string, perm fs.FileMode) error
	Remove(name string) error
	Rename(from, to string) error
	Link(from, to string) error
	Symlink(target, name string) error
	ReadLink(name string) (string, error)
	Truncate(name string, size int64) error
	Chmod(name string, mode fs.FileMode) error
	Chown(name string, uid, gid int) error
	Chtimes(name string, atime, mtime time.Time) error
	Attribute(name, attribute string) ([]byte, error)
	SetAttribute(name, attribute string, value []byte) error
	RemoveAttribute(name, attribute string) error
}

// sessionDoor goes through a session.
type sessionDoor struct{ *client.Files }

func (d sessionDoor) OpenFile(name string, flag int, perm fs.FileMode) (openedFile, error) {
	f, err := d.Files.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// mountDoor goes through the kernel, below a directory.
type mountDoor string

func (d mountDoor) at(name string) string { return filepath.Join(string(d), name) }

func (d mountDoor) OpenFile(name string, flag int, perm fs.FileMode) (openedFile, error) {
	return os.OpenFile(d.at(name), flag, perm)
}
func (d mountDoor) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(d.at(name)) }
func (d mountDoor) Stat(name string) (fs.FileInfo, error)      { return os.Stat(d.at(name)) }
func (d mountDoor) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(d.at(name)) }
func (d mountDoor) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(d.at(name), perm) }
func (d mountDoor) Remove(name string) error                   { return os.Remove(d.at(name)) }
func (d mountDoor) Rename(from, to string) error               { return unix.Rename(d.at(from), d.at(to)) }

func (d mountDoor) Link(from, to string) error { return os.Link(d.at(from), d.at(to)) }

func (d mountDoor) Symlink(target, name string) error         { return os.Symlink(target, d.at(name)) }
func (d mountDoor) ReadLink(name string) (string, error)      { return os.Readlink(d.at(name)) }
func (d mountDoor) Truncate(name string, size int64) error    { return os.Truncate(d.at(name), size) }
func (d mountDoor) Chmod(name string, mode fs.FileMode) error { return os.Chmod(d.at(name), mode) }
func (d mountDoor) Chown(name string, uid, gid int) error     { return os.Chown(d.at(name), uid, gid) }

func (d mountDoor) Chtimes(name string, a, m time.Time) error { return os.Chtimes(d.at(name), a, m) }

func (d mountDoor) SetAttribute(name, attribute string, v []byte) error {
	return unix.Setxattr(d.at(name), attribute, v, 0)
}

func (d mountDoor) RemoveAttribute(name, attribute string) error {
	return unix.Removexattr(d.at(name), attribute)
}

func (d mountDoor) Attribute(name, attribute string) ([]byte, error) {
	value := make([]byte, 64<<10)
	n, err := unix.Getxattr(d.at(name), attribute, value)
	return value[:max(n, 0)], err
}

// openFlags are the flags that the words of an open select.
func openFlags(words string) (flags int) {
	for word := range strings.SplitSeq(words, ",") {
		flags |= map[string]int{
			"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "creat": os.O_CREATE, "excl": os.O_EXCL, "trunc": os.O_TRUNC,
			"append": os.O_APPEND, "dir": syscall.O_DIRECTORY, "nofollow": syscall.O_NOFOLLOW,
		}[word]
	}
	return flags
}

// number parses a decimal number.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func modeBits(s string) fs.FileMode {
	n := number("0o" + s)
	mode := fs.FileMode(n & 0o777)
	if n&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if n&0o2000 != 0 {
		mode |= fs.ModeSetgid
	}
	if n&0o4000 != 0 {
		mode |= fs.ModeSetuid
	}
	return mode
}

func shownInfo(i fs.FileInfo, err error) (string, error) {
	if err != nil {
		return "", err
	}
	st, _ := i.Sys().(*syscall.Stat_t)
	size := i.Size()
	if i.IsDir() {
		size = 0
	}
	return fmt.Sprintf("%s %v %d %d:%d links %d at %d", i.Name(), i.Mode(), size, st.Uid, st.Gid, st.Nlink, i.ModTime().Unix()>>20), nil
}

// errnoWord returns the name of the errno of an error.
func errnoWord(err error) string {
	if err == nil {
		return "ok"
	}
	if number, ok := asErrno(err); ok {
		return unix.ErrnoName(number)
	}
	return err.Error()
}

// execute runs one line with a door: a verb, and names and numbers. It returns what there is to
// compare.
func execute(d door, line string) (string, error) {
	w := strings.Fields(line)
	for len(w) < 5 {
		w = append(w, "")
	}
	switch w[0] {
	case "open": // NAME FLAGS MODE
		f, err := d.OpenFile(w[1], openFlags(w[2]), modeBits("0"+w[3]))
		if err != nil {
			return "", err
		}
		return "", f.Close()
	case "write": // NAME FLAGS SEED OFF+SIZE
		return writeThrough(d, w)
	case "read": // NAME
		f, err := d.OpenFile(w[1], os.O_RDONLY, 0)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(f)
		_ = f.Close() // it was only read
		return fmt.Sprintf("%d bytes, %x", len(data), sum(data)), err
	case "ls":
		entries, err := d.ReadDir(w[1])
		var names []string
		for _, e := range entries {
			names = append(names, fmt.Sprintf("%v %s", e.Type(), e.Name()))
		}
		sort.Strings(names)
		return strings.Join(names, ", "), err
	case "stat":
		return shownInfo(d.Stat(w[1]))
	case "lstat":
		return shownInfo(d.Lstat(w[1]))
	case "mkdir":
		return "", d.Mkdir(w[1], modeBits(w[2]))
	case "rm":
		return "", d.Remove(w[1])
	case "mv":
		return "", d.Rename(w[1], w[2])
	case "ln":
		return "", d.Link(w[1], w[2])
	case "symlink":
		return "", d.Symlink(w[1], w[2])
	case "readlink":
		return d.ReadLink(w[1])
	case "truncate":
		return "", d.Truncate(w[1], number(w[2]))
	case "chmod":
		return "", d.Chmod(w[1], modeBits(w[2]))
	case "chown":
		return "", d.Chown(w[1], int(number(w[2])), int(number(w[3])))
	case "touch":
		at := time.Unix(number(w[2]), 0)
		return "", d.Chtimes(w[1], at, at)
	case "get":
		value, err := d.Attribute(w[1], w[2])
		return string(value), err
	case "set":
		return "", d.SetAttribute(w[1], w[2], []byte(w[3]))
	case "unset":
		return "", d.RemoveAttribute(w[1], w[2])
	default:
		panic("unknown verb: " + line)
	}
}

// writeThrough opens a file, writes position-dependent bytes, and closes it.
func writeThrough(d door, w []string) (string, error) {
	f, err := d.OpenFile(w[1], openFlags(w[2]), 0o644)
	if err != nil {
		return "", err
	}
	off, size, _ := strings.Cut(w[4], "+")
	data := kit.Bytes(uint64(number(w[3])), 0, int(number(size)))
	var n int
	if strings.Contains(w[2], "append") {
		n, err = f.Write(data)
	} else {
		n, err = f.WriteAt(data, number(off))
	}
	_ = f.Close() // the write has failed, or the bytes are in place
	return fmt.Sprint(n), err
}
