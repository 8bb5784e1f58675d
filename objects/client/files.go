package client

import (
	"context"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// Files is the tree of files of a daemon: what a mount of it shows. It implements fs.FS with
// fs.ReadFileFS, fs.ReadDirFS, fs.StatFS and fs.ReadLinkFS, and has the calls that change files.
// Names are those of package io/fs: "cuda0/dir/a", and "." for the root.
//
// The daemon checks the permissions of this user on every call, as a kernel does for a mount.
// Errors are *fs.PathError, with the syscall.Errno that the mount would return; errors.Is finds
// fs.ErrNotExist, fs.ErrExist and fs.ErrPermission in them.
type Files struct {
	session *Session
}

var (
	_ fs.ReadFileFS      = (*Files)(nil)
	_ fs.ReadDirFS       = (*Files)(nil)
	_ fs.StatFS          = (*Files)(nil)
	_ fs.ReadLinkFS      = (*Files)(nil)
	_ fs.ReadDirFile     = (*File)(nil)
	_ io.ReaderAt        = (*File)(nil)
	_ io.WriterAt        = (*File)(nil)
	_ io.ReadWriteSeeker = (*File)(nil)
)

// Files returns the files of the session's daemon. Open files end with the session.
func (s *Session) Files() *Files { return &Files{s} }

func unimplemented(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: syscall.ENOSYS}
}

// Open opens a file or a directory for reading. The file is a *File.
func (f *Files) Open(name string) (fs.File, error) { return nil, unimplemented("open", name) }

// OpenFile opens a file, or a directory for reading. flag has the bits of os.OpenFile.
func (f *Files) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	return nil, unimplemented("open", name)
}

// Create creates a file, or truncates an existing one, and opens it for reading and writing.
func (f *Files) Create(name string, perm fs.FileMode) (*File, error) {
	return nil, unimplemented("open", name)
}

// ReadFile returns the bytes of a file.
func (f *Files) ReadFile(name string) ([]byte, error) { return nil, unimplemented("open", name) }

// WriteFile makes data the bytes of a file, which is created if it does not exist.
func (f *Files) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return unimplemented("open", name)
}

// ReadDir returns the entries of a directory, sorted by name.
func (f *Files) ReadDir(name string) ([]fs.DirEntry, error) { return nil, unimplemented("open", name) }

// Stat describes a file; it follows symbolic links. Sys of the result is a *syscall.Stat_t.
func (f *Files) Stat(name string) (fs.FileInfo, error) { return nil, unimplemented("stat", name) }

// Lstat is Stat for a symbolic link itself.
func (f *Files) Lstat(name string) (fs.FileInfo, error) { return nil, unimplemented("lstat", name) }

// ReadLink returns the target of a symbolic link.
func (f *Files) ReadLink(name string) (string, error) { return "", unimplemented("readlink", name) }

// Mkdir creates a directory.
func (f *Files) Mkdir(name string, perm fs.FileMode) error { return unimplemented("mkdir", name) }

// MkdirAll creates a directory and those above it.
func (f *Files) MkdirAll(name string, perm fs.FileMode) error { return unimplemented("mkdir", name) }

// Remove removes a file or an empty directory.
func (f *Files) Remove(name string) error { return unimplemented("remove", name) }

// Rename gives a file or directory another name, and replaces an existing file. Between the
// directories of two devices the bytes are moved from device to device.
func (f *Files) Rename(from, to string) error { return unimplemented("rename", from) }

// Copy makes the bytes of a file those of another one, which is created with the same permissions
// if it does not exist, and returns their number. They are copied inside the daemon, from device
// to device. If the context ends first, a part of them is copied.
func (f *Files) Copy(ctx context.Context, from, to string) (int64, error) {
	return 0, unimplemented("copy", from)
}

// Link gives a file another name.
func (f *Files) Link(from, to string) error { return unimplemented("link", from) }

// Symlink creates a symbolic link to target, which need not exist.
func (f *Files) Symlink(target, name string) error { return unimplemented("symlink", name) }

// Truncate changes the size of a file.
func (f *Files) Truncate(name string, size int64) error { return unimplemented("truncate", name) }

// Chmod changes the permissions of a file.
func (f *Files) Chmod(name string, mode fs.FileMode) error { return unimplemented("chmod", name) }

// Chown changes the owner and the group of a file; -1 leaves one of them.
func (f *Files) Chown(name string, uid, gid int) error { return unimplemented("chown", name) }

// Chtimes changes the times of a file; a zero time leaves one of them.
func (f *Files) Chtimes(name string, atime, mtime time.Time) error {
	return unimplemented("chtimes", name)
}

// Attribute returns an extended attribute, such as user.hmc.path.
func (f *Files) Attribute(name, attribute string) ([]byte, error) {
	return nil, unimplemented("getxattr", name)
}

// SetAttribute sets an extended attribute.
func (f *Files) SetAttribute(name, attribute string, value []byte) error {
	return unimplemented("setxattr", name)
}

// Attributes returns the names of the extended attributes of a file.
func (f *Files) Attributes(name string) ([]string, error) {
	return nil, unimplemented("listxattr", name)
}

// RemoveAttribute removes an extended attribute.
func (f *Files) RemoveAttribute(name, attribute string) error {
	return unimplemented("removexattr", name)
}

// StatFS returns the use of the device that a file is on; for the root, that of all devices.
func (f *Files) StatFS(name string) (devices.Usage, error) {
	return devices.Usage{}, unimplemented("statfs", name)
}

// Memory names the memory of a file for this process, as Client.Export does for a file of a
// mount: as kind or, if that is empty, as the best kind of its device. The caller must close it.
func (f *Files) Memory(ctx context.Context, name string, kind devices.HandleKind) (*Export, error) {
	return nil, unimplemented("export", name)
}

// File is an open file or directory of a session. It may be used from any goroutine.
type File struct {
	files *Files
	name  string
}

// Name returns the name that the file was opened by.
func (f *File) Name() string { return f.name }

// Stat describes the file.
func (f *File) Stat() (fs.FileInfo, error) { return nil, unimplemented("stat", f.name) }

// Read reads from the current position.
func (f *File) Read(p []byte) (int, error) { return 0, unimplemented("read", f.name) }

// ReadAt reads at an offset.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return 0, unimplemented("read", f.name) }

// Write writes at the current position, or at the end of a file opened with os.O_APPEND.
func (f *File) Write(p []byte) (int, error) { return 0, unimplemented("write", f.name) }

// WriteAt writes at an offset.
func (f *File) WriteAt(p []byte, off int64) (int, error) { return 0, unimplemented("write", f.name) }

// Seek sets the position of Read, Write and ReadDir.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	return 0, unimplemented("seek", f.name)
}

// Truncate changes the size.
func (f *File) Truncate(size int64) error { return unimplemented("truncate", f.name) }

// Sync returns when the content is as durable as the device makes it.
func (f *File) Sync() error { return unimplemented("sync", f.name) }

// ReadDir returns the next n entries of a directory; all the rest if n is not positive.
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) { return nil, unimplemented("readdir", f.name) }

// Close closes the file.
func (f *File) Close() error { return unimplemented("close", f.name) }
