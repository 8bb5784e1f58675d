package copier

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reader is the part of a Tree that only reads names.
type reader interface {
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	ReadLink(name string) (string, error)
}

// keeper is the part of a Tree that sets what a copy keeps.
type keeper interface {
	Chmod(name string, mode fs.FileMode) error
	// Chown and Chtimes change a link itself.
	Chown(name string, uid, gid int) error
	Chtimes(name string, atime, mtime time.Time) error
}

// Tree is a tree of files. Its methods are those of package os.
type Tree interface {
	reader
	keeper
	Open(name string, flag int, perm fs.FileMode) (Handle, error)
	Mkdir(name string, perm fs.FileMode) error
	Symlink(target, name string) error
	Truncate(name string, size int64) error
	Remove(name string) error
	Link(from, to string) error
}

// Handle is an open file of a Tree.
type Handle interface {
	io.ReadWriteCloser
	io.WriterAt
	Truncate(size int64) error
}

// Inner is a Tree that copies between its own files by itself, and whose files have extended
// attributes.
type Inner interface {
	Tree
	Copy(ctx context.Context, from, to string) (int64, error)
	Attribute(name, attribute string) ([]byte, error)
	Attributes(name string) ([]string, error)
	SetAttribute(name, attribute string, value []byte) error
}

// local is the tree of the operating system.
type local struct{}

func (local) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (local) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (local) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (local) ReadLink(name string) (string, error)       { return os.Readlink(name) }
func (local) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (local) Symlink(target, name string) error          { return os.Symlink(target, name) }
func (local) Chmod(name string, mode fs.FileMode) error  { return os.Chmod(name, mode) }
func (local) Truncate(name string, size int64) error     { return os.Truncate(name, size) }
func (local) Remove(name string) error                   { return os.Remove(name) }
func (local) Link(from, to string) error                 { return os.Link(from, to) }
func (local) Chown(name string, uid, gid int) error      { return os.Lchown(name, uid, gid) }

func (local) Chtimes(name string, atime, mtime time.Time) error {
	return timesError(name, unix.UtimesNanoAt(unix.AT_FDCWD, name, timespecs(atime, mtime), unix.AT_SYMLINK_NOFOLLOW))
}

func timespecs(atime, mtime time.Time) []unix.Timespec {
	return []unix.Timespec{unix.NsecToTimespec(atime.UnixNano()), unix.NsecToTimespec(mtime.UnixNano())}
}

func timesError(name string, err error) error {
	if err != nil {
		return &fs.PathError{Op: "utimensat", Path: name, Err: err}
	}
	return nil
}

func (local) Open(name string, flag int, perm fs.FileMode) (Handle, error) {
	return os.OpenFile(name, flag, perm)
}

// spot is a file of a tree; it need not exist.
type spot struct {
	tree Tree
	name string
	// text names it for the user.
	text string
}

// at returns the file that a user names.
func (c *copier) at(text string) spot {
	if c.opts.Find != nil {
		if tree, name, ok := c.opts.Find(text); ok {
			return spot{tree, name, text}
		}
	}
	return spot{local{}, text, text}
}

func (s spot) isLocal() bool {
	_, is := s.tree.(local)
	return is
}

func (s spot) stat() (fs.FileInfo, error) { return s.tree.Stat(s.name) }

// in returns a file of a directory.
func (s spot) in(name string) spot {
	if s.isLocal() {
		return spot{s.tree, filepath.Join(s.name, name), filepath.Join(s.text, name)}
	}
	text := s.text
	if !strings.HasSuffix(text, ":") && !strings.HasSuffix(text, "/") {
		text += "/"
	}
	return spot{s.tree, path.Join(s.name, name), text + name}
}

// up returns the directory of a file.
func (s spot) up() spot {
	if s.isLocal() {
		return spot{s.tree, filepath.Dir(s.name), filepath.Dir(s.text)}
	}
	return spot{s.tree, path.Dir(s.name), s.text}
}

// deviceOf returns the device number of an existing local file; 0 for others.
func deviceOf(s spot) uint64 {
	if !s.isLocal() {
		return 0
	}
	var st unix.Stat_t
	if err := unix.Stat(s.name, &st); err != nil {
		return 0
	}
	return st.Dev
}

// base returns the name that the file gets in another directory. The directory itself, DIR/., gets none:
// its contents are copied.
func (s spot) base() string {
	if s.text == "." || strings.HasSuffix(s.text, "/.") {
		return "."
	}
	return filepath.Base(filepath.Clean(s.name))
}

// same reports whether two files, of which a is at s and b is at other, are one.
func (s spot) same(a fs.FileInfo, other spot, b fs.FileInfo) bool {
	if s.isLocal() || other.isLocal() {
		return os.SameFile(a, b)
	}
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && s.tree == other.tree && x.Ino == y.Ino
}
