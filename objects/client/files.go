package client

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// Files is the tree of files of a daemon: what a mount of it shows. It implements fs.FS with
// fs.ReadFileFS, fs.ReadDirFS, fs.StatFS and fs.ReadLinkFS, and has the calls that change files.
// Names are those of package io/fs: "cuda0/dir/a", and "." for the root. Modes of new files are
// subject to this process's umask.
//
// The daemon checks the permissions of this user on every call, as a kernel does for a mount.
// Errors are *fs.PathError, with the syscall.Errno that the mount would return; errors.Is finds
// fs.ErrNotExist, fs.ErrExist and fs.ErrPermission in them. A symbolic link that leaves the tree
// is EXDEV.
type Files struct {
	session *Session
	umask   uint32
}

var (
	_ fs.ReadFileFS = (*Files)(nil)
	_ fs.ReadDirFS  = (*Files)(nil)
	_ fs.StatFS     = (*Files)(nil)
	_ fs.ReadLinkFS = (*Files)(nil)
)

// Files returns the files of the session's daemon. Open files end with the session.
func (s *Session) Files() *Files { return &Files{session: s, umask: umask()} }

// umask returns the umask of this process, which can't be read otherwise without changing it.
func umask() uint32 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "Umask:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(text), 8, 32)
			if err == nil {
				return uint32(mask)
			}
		}
	}
	return 0
}

// modeOf returns the bits of a mode.
func modeOf(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for _, b := range []struct {
		mode fs.FileMode
		bit  uint32
	}{{fs.ModeSetuid, syscall.S_ISUID}, {fs.ModeSetgid, syscall.S_ISGID}, {fs.ModeSticky, syscall.S_ISVTX}} {
		if mode&b.mode != 0 {
			bits |= b.bit
		}
	}
	return bits
}

// Open opens a file or a directory for reading. The file is a *File.
func (f *Files) Open(name string) (fs.File, error) {
	file, err := f.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err // not a nil *File in an fs.File
	}
	return file, nil
}

// OpenFile opens a file, or a directory for reading. flag has the bits of os.OpenFile.
func (f *Files) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	for {
		generation := f.session.daemon()
		a, err := f.named(fileAsk{op: "open", name: name, verb: frames.FileOpen, call: frames.FileCall{
			Name: name, Flags: uint32(flag &^ syscall.O_CLOEXEC), Mode: modeOf(perm) &^ f.umask,
		}})
		if err != nil {
			return nil, err
		}
		file := &File{files: f, name: name, handle: a.Handle, appends: flag&os.O_APPEND != 0}
		kept, err := f.session.opened(file, uint32(flag), &a, generation)
		if err != nil || kept {
			return file, err
		}
		// The daemon has died, and it is not known which one has opened the file.
		_, _ = file.ask(context.Background(), "close", frames.FileClose, frames.FileCall{}, nil) // one of them does not know it
		flag &^= os.O_EXCL | os.O_TRUNC
	}
}

// Create creates a file, or truncates an existing one, and opens it for reading and writing.
func (f *Files) Create(name string, perm fs.FileMode) (*File, error) {
	return f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, perm)
}

// ReadFile returns the bytes of a file.
func (f *Files) ReadFile(name string) ([]byte, error) {
	file, err := f.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	data, err := file.readAll()
	return data, errors.Join(err, file.Close())
}

// WriteFile makes data the bytes of a file, which is created if it does not exist.
func (f *Files) WriteFile(name string, data []byte, perm fs.FileMode) error {
	file, err := f.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// ReadDir returns the entries of a directory, sorted by name.
func (f *Files) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := f.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, dir.Close())
}

// Stat describes a file; it follows symbolic links. Sys of the result is a *syscall.Stat_t.
func (f *Files) Stat(name string) (fs.FileInfo, error) { return f.stat("stat", name, 0) }

// Lstat is Stat for a symbolic link itself.
func (f *Files) Lstat(name string) (fs.FileInfo, error) {
	return f.stat("lstat", name, frames.FileNoFollow)
}

func (f *Files) stat(op, name string, flags uint32) (fs.FileInfo, error) {
	return infoOf(op, name)(f.named(fileAsk{op: op, name: name, verb: frames.FileStat, call: frames.FileCall{Name: name, Flags: flags}}))
}

// ReadLink returns the target of a symbolic link.
func (f *Files) ReadLink(name string) (string, error) {
	a, err := f.named(fileAsk{op: "readlink", name: name, verb: frames.FileReadlink, call: frames.FileCall{Name: name}})
	if err != nil {
		return "", err
	}
	return string(a.Data), nil
}

// Mkdir creates a directory.
func (f *Files) Mkdir(name string, perm fs.FileMode) error {
	_, err := f.named(fileAsk{op: "mkdir", name: name, verb: frames.FileMkdir, call: frames.FileCall{Name: name, Mode: modeOf(perm) &^ f.umask}})
	return err
}

// MkdirAll creates a directory and those above it.
func (f *Files) MkdirAll(name string, perm fs.FileMode) error {
	info, err := f.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err = f.MkdirAll(path.Dir(name), perm); err != nil {
		return err
	}
	if err = f.Mkdir(name, perm); !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, failure := f.Lstat(name); failure == nil && info.IsDir() {
		return nil // another process has created it
	}
	return err
}

// Remove removes a file or an empty directory.
func (f *Files) Remove(name string) error {
	_, err := f.named(fileAsk{op: "remove", name: name, verb: frames.FileRemove, call: frames.FileCall{Name: name}})
	return err
}

// pair makes a call about two names.
func (f *Files) pair(ctx context.Context, op, from, to string, verb frames.FileVerb, mode uint32) (frames.FileAnswer, error) {
	if err := errors.Join(valid(op, from), valid(op, to)); err != nil {
		return frames.FileAnswer{}, err
	}
	return f.do(ctx, &fileAsk{op: op, name: from, verb: verb, call: frames.FileCall{Name: from, Other: to, Mode: mode}})
}

// Rename gives a file or directory another name, and replaces an existing file. Between the
// directories of two devices the bytes are moved from device to device.
func (f *Files) Rename(from, to string) error {
	_, err := f.pair(context.Background(), "rename", from, to, frames.FileRename, 0)
	return err
}

// RenameNew is Rename for a name that no file has: for one that exists it is fs.ErrExist.
func (f *Files) RenameNew(from, to string) error {
	const op = "rename"
	err := errors.Join(valid(op, from), valid(op, to))
	if err == nil {
		q := frames.FileCall{Name: from, Other: to, Flags: frames.FileNoReplace}
		_, err = f.do(context.Background(), &fileAsk{op: op, name: from, verb: frames.FileRename, call: q})
	}
	return err
}

// Copy makes the bytes of a file those of another one, which is created with the same permissions
// if it does not exist, and returns their number. They are copied inside the daemon, from device
// to device. If the context ends first, a part of them is copied.
func (f *Files) Copy(ctx context.Context, from, to string) (int64, error) {
	a, err := f.pair(ctx, "copy", from, to, frames.FileCopy, f.umask)
	if cause := ctx.Err(); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return int64(a.N), err
}

// Link gives a file another name.
func (f *Files) Link(from, to string) error {
	_, err := f.pair(context.Background(), "link", from, to, frames.FileLink, 0)
	return err
}

// Symlink creates a symbolic link to target, which need not exist.
func (f *Files) Symlink(target, name string) error {
	_, err := f.named(fileAsk{op: "symlink", name: name, verb: frames.FileSymlink, call: frames.FileCall{Name: name, Other: target}})
	return err
}

// change changes attributes; it follows symbolic links.
func (f *Files) change(op, name string, c *frames.Change) error {
	_, err := f.named(fileAsk{op: op, name: name, verb: frames.FileChange, call: frames.FileCall{Name: name, Data: frames.AppendChange(nil, c)}})
	return err
}

// Truncate changes the size of a file.
func (f *Files) Truncate(name string, size int64) error {
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: name, Err: syscall.EINVAL}
	}
	return f.change("truncate", name, &frames.Change{Set: frames.ChangeSize, Size: uint64(size)})
}

// Chmod changes the permissions of a file.
func (f *Files) Chmod(name string, mode fs.FileMode) error {
	return f.change("chmod", name, &frames.Change{Set: frames.ChangeMode, Mode: modeOf(mode)})
}

// Chown changes the owner and the group of a file; -1 leaves one of them.
func (f *Files) Chown(name string, uid, gid int) error {
	c := frames.Change{UID: uint32(uid), GID: uint32(gid)}
	if uid != -1 {
		c.Set |= frames.ChangeUID
	}
	if gid != -1 {
		c.Set |= frames.ChangeGID
	}
	return f.change("chown", name, &c)
}

// Chtimes changes the times of a file; a zero time leaves one of them.
func (f *Files) Chtimes(name string, atime, mtime time.Time) error {
	var c frames.Change
	for _, t := range []struct {
		to  *syscall.Timespec
		at  time.Time
		bit uint32
	}{{&c.Atime, atime, frames.ChangeAtime}, {&c.Mtime, mtime, frames.ChangeMtime}} {
		if !t.at.IsZero() {
			*t.to = syscall.Timespec{Sec: t.at.Unix(), Nsec: int64(t.at.Nanosecond())}
			c.Set |= t.bit
		}
	}
	return f.change("chtimes", name, &c)
}

// Attribute returns an extended attribute, such as user.hmc.path.
func (f *Files) Attribute(name, attribute string) ([]byte, error) {
	a, err := f.named(fileAsk{op: "getxattr", name: name, verb: frames.FileGetAttribute, call: frames.FileCall{Name: name, Other: attribute}})
	if err != nil {
		return nil, err
	}
	return a.Data, nil
}

// SetAttribute sets an extended attribute.
func (f *Files) SetAttribute(name, attribute string, value []byte) error {
	_, err := f.named(fileAsk{op: "setxattr", name: name, verb: frames.FileSetAttribute, call: frames.FileCall{
		Name: name, Other: attribute, Data: value,
	}})
	return err
}

// Attributes returns the names of the extended attributes of a file.
func (f *Files) Attributes(name string) ([]string, error) {
	a, err := f.named(fileAsk{op: "listxattr", name: name, verb: frames.FileListAttributes, call: frames.FileCall{Name: name}})
	if err != nil || len(a.Data) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(a.Data), "\x00"), "\x00"), nil
}

// RemoveAttribute removes an extended attribute.
func (f *Files) RemoveAttribute(name, attribute string) error {
	_, err := f.named(fileAsk{op: "removexattr", name: name, verb: frames.FileRemoveAttribute, call: frames.FileCall{Name: name, Other: attribute}})
	return err
}

// StatFS returns the use of the device that a file is on; for the root, that of all devices.
func (f *Files) StatFS(name string) (devices.Usage, error) {
	a, err := f.named(fileAsk{op: "statfs", name: name, verb: frames.FileUsage, call: frames.FileCall{Name: name}})
	if err != nil {
		return devices.Usage{}, err
	}
	usage, err := frames.ParseUsage(a.Data)
	if err != nil {
		return usage, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return usage, nil
}

// Memory names the memory of a file for this process, as Client.Export does for a file of a
// mount: as kind or, if that is empty, as the best kind of its device. The caller must close it,
// and must be allowed to read and write the file.
func (f *Files) Memory(ctx context.Context, name string, kind devices.HandleKind) (*Export, error) {
	if err := valid("export", name); err != nil {
		return nil, err
	}
	e, err := f.session.export(ctx, adminapi.ExportRequest{File: adminapi.File{Path: name}, Kind: kind, Hold: true}, nil)
	if err != nil {
		return nil, &fs.PathError{Op: "export", Path: name, Err: err}
	}
	return e, nil
}

// infoOf converts the answer to a call that describes a file.
func infoOf(op, name string) func(frames.FileAnswer, error) (fs.FileInfo, error) {
	return func(a frames.FileAnswer, err error) (fs.FileInfo, error) {
		if err != nil {
			return nil, err
		}
		st, err := frames.ParseStat(a.Data)
		if err != nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: err}
		}
		return &fileInfo{path.Base(name), st}, nil
	}
}

// fileInfo describes a file.
type fileInfo struct {
	name string
	st   syscall.Stat_t
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.st.Size }
func (i *fileInfo) Mode() fs.FileMode  { return fileMode(i.st.Mode) }
func (i *fileInfo) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i *fileInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *fileInfo) Sys() any           { return &i.st }

// fileMode converts the bits of a mode.
func fileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, is := range map[uint32]fs.FileMode{
		syscall.S_ISUID: fs.ModeSetuid, syscall.S_ISGID: fs.ModeSetgid, syscall.S_ISVTX: fs.ModeSticky,
	} {
		if bits&bit != 0 {
			mode |= is
		}
	}
	switch bits & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return mode | fs.ModeDir
	case syscall.S_IFLNK:
		return mode | fs.ModeSymlink
	case syscall.S_IFIFO:
		return mode | fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		return mode | fs.ModeSocket
	case syscall.S_IFCHR:
		return mode | fs.ModeDevice | fs.ModeCharDevice
	case syscall.S_IFBLK:
		return mode | fs.ModeDevice
	}
	return mode
}

// dirEntry is an entry of a directory.
type dirEntry struct {
	files *Files
	dir   string
	entry frames.FileEntry
}

func (e *dirEntry) Name() string               { return e.entry.Name }
func (e *dirEntry) IsDir() bool                { return e.Type().IsDir() }
func (e *dirEntry) Type() fs.FileMode          { return fileMode(e.entry.Type).Type() }
func (e *dirEntry) Info() (fs.FileInfo, error) { return e.files.Lstat(path.Join(e.dir, e.entry.Name)) }
func (e *dirEntry) String() string             { return fs.FormatDirEntry(e) }
