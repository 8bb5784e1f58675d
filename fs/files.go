package fs

import (
	"context"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// Files are the files of a mount for users that reach them without the kernel: sessions. Each
// call is made of the requests that a kernel would send for it, so both see the same files, with
// the same errors; what a kernel checks beforehand, the walk along a path and the permissions,
// is checked here. Errors are syscall.Errno.
type Files struct{ fs *filesystem }

// Files returns the files of the mount.
func (s *Server) Files() *Files { return &Files{s.fs} }

// NewFiles returns the files of a store that is not mounted. Close must be called.
func NewFiles(o Options) *Files {
	o.EnsureDefaults()
	f := newFilesystem(o)
	reason := "there is no mount"
	f.backings.reason.Store(&reason)
	t := &Files{f}
	t.begin()
	return t
}

// Close closes what is left open. It must not be called for the files of a mount.
func (t *Files) Close() { t.end() }

// begin asks for notices of changes that others than the users of these files make.
func (t *Files) begin() {
	f := t.fs
	f.store.OnChange(f.objectChanged)
	if f.opts.Cluster != nil {
		f.tree.OnInvalidate(f.otherChanged)
		f.opts.Cluster.OnServed(f.served)
	}
}

// end undoes begin, and closes what is left open.
func (t *Files) end() {
	f := t.fs
	f.store.OnChange(nil)
	if c := f.opts.Cluster; c != nil {
		f.tree.OnInvalidate(nil)
		c.OnServed(nil)
	}
	f.closeHandles()
}

// Limits returns the bounds on users of the files, and the number of refusals by each.
func (t *Files) Limits() []metadata.LimitStatus { return t.fs.streams.limits() }

// Tensor returns the file, and the path in its view, of the tensor that an inode number is for.
// ok is false for any other inode.
func (t *Files) Tensor(ino metadata.Ino) (file metadata.Ino, path string, ok bool) {
	return t.fs.views.tensor(ino)
}

// EntryChanged notifies the kernel, if there is one, that the daemon itself has made, removed or
// moved a name of a directory. It waits for requests on that directory, so it must not be called
// while holding a lock that those need.
func (t *Files) EntryChanged(parent metadata.Ino, name string) {
	t.fs.names.Add(1)
	t.fs.kernel.InvalidateEntry(parent, name)
}

// InodeChanged notifies the kernel, if there is one, that the daemon itself has changed an
// inode's attributes, such as those of an object that is lost.
func (t *Files) InodeChanged(ino metadata.Ino) { t.fs.kernel.InvalidateInode(ino) }

// Guest is one user of Files. Its methods may be called from any goroutine.
type Guest struct {
	cluster.User

	id uint32
	// frozen is true for a mount that permits no changes (-o ro).
	frozen bool
	// fs answers requests through raw, as it answers the kernel's.
	fs  *filesystem
	raw fuse.RawFileSystem
	// notify has the kernel drop what it caches; nil without a kernel.
	notify func(objects.Notice)
}

// Begin returns a new user. End must be called once.
func (t *Files) Begin(who objects.Caller) *Guest {
	who = who.WithGroups()
	g := &Guest{User: cluster.User{Caller: who}, id: t.fs.guests.add(who), fs: t.fs, raw: t.fs, frozen: t.fs.opts.frozen()}
	if _, none := t.fs.kernel.(noKernel); !none {
		g.notify = t.fs.served
	}
	return g
}

// End ends the user, who has no calls in progress and no open files.
func (g *Guest) End() { g.fs.guests.remove(g.id) }

// header returns the header of a request about an inode.
func (g *Guest) header(ino uint64) fuse.InHeader {
	return fuse.InHeader{NodeId: ino, Caller: fuse.Caller{Owner: fuse.Owner{Uid: g.UID, Gid: g.GID}, Pid: g.id}}
}

// errOf returns a status as an error.
func errOf(status fuse.Status) error {
	if status == fuse.OK {
		return nil
	}
	return syscall.Errno(status)
}

// denied returns the errno of an error of cluster.User, or nil.
func (g *Guest) denied(err error) error { return errOf(g.fs.errs.status(err)) }

// touched has the kernel, if there is one, drop what it caches of an inode, and of the names of
// a directory; 0 is none.
func (g *Guest) touched(ino, dir uint64) {
	if g.notify != nil {
		g.notify(objects.Notice{Ino: metadata.Ino(ino), Dir: metadata.Ino(dir)})
	}
}

const (
	// maxPath bounds a name, in bytes, as PATH_MAX does.
	maxPath = 4096
	// maxLinks bounds the symbolic links that a walk follows, as in the kernel.
	maxLinks = 40
)

// partsOf returns the parts of a name: "." and names of package io/fs.
//
// Errors: EINVAL; ENAMETOOLONG.
func partsOf(name string) ([]string, error) {
	switch {
	case name == ".":
		return nil, nil
	case len(name) >= maxPath:
		return nil, syscall.ENAMETOOLONG
	case strings.ContainsRune(name, 0):
		return nil, syscall.EINVAL
	}
	parts := strings.Split(name, "/")
	for _, part := range parts {
		switch {
		case part == "", part == ".", part == "..":
			return nil, syscall.EINVAL
		case len(part) > metadata.MaxName:
			return nil, syscall.ENAMETOOLONG
		}
	}
	return parts, nil
}

// spot is an inode on which a reference is held.
type spot struct {
	ino  uint64
	attr fuse.Attr
}

// as returns the part of the attributes that permissions depend on.
func (s *spot) as() *objects.Attr {
	return &objects.Attr{Inode: metadata.Inode{
		Ino: metadata.Ino(s.ino), Mode: metadata.Mode(s.attr.Mode), UID: s.attr.Uid, GID: s.attr.Gid,
	}}
}

func (s *spot) is(kind uint32) bool { return s.attr.Mode&syscall.S_IFMT == kind }

func (s *spot) isDir() bool { return s.is(syscall.S_IFDIR) }

// walk is the way to a name.
type walk struct {
	guest  *Guest
	cancel <-chan struct{}
	// dirs are the directories from the root down; the last one has the name.
	dirs []spot
	// last is the name in that directory; empty for a directory that was reached otherwise,
	// which then is the last of dirs.
	last string
	// found is the inode of the name; its ino is 0 if there is none.
	found spot
	links int
}

// dir returns the directory that has the name.
func (w *walk) dir() *spot { return &w.dirs[len(w.dirs)-1] }

// target returns the inode that was found.
//
// Errors: ENOENT.
func (w *walk) target() (*spot, error) {
	switch {
	case w.last == "":
		return w.dir(), nil
	case w.found.ino == 0:
		return nil, syscall.ENOENT
	}
	return &w.found, nil
}

// end drops the references.
func (w *walk) end() {
	for i := range w.dirs {
		w.guest.forget(&w.dirs[i])
	}
	w.guest.forget(&w.found)
}

func (g *Guest) forget(s *spot) {
	if s.ino != 0 {
		g.raw.Forget(s.ino, 1)
	}
}

// at walks to a name and calls do, once more if an inode has disappeared meanwhile. follow
// follows a symbolic link of that name.
func (g *Guest) at(ctx context.Context, name string, follow bool, do func(w *walk) error) error {
	parts, err := partsOf(name)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		w := &walk{guest: g, cancel: ctx.Done()}
		if err = w.to(parts, follow); err == nil {
			err = do(w)
		}
		w.end()
		if err != syscall.ESTALE || try > 0 { //nolint:errorlint // errors are plain numbers here
			return err
		}
	}
}

// to walks from the root.
//
// Errors: ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG; EXDEV for a symbolic link that leaves
// the tree.
func (w *walk) to(parts []string, follow bool) error {
	if err := w.begin(); err != nil {
		return err
	}
	for len(parts) > 0 {
		if !w.dir().isDir() {
			return syscall.ENOTDIR
		}
		if err := w.guest.denied(w.guest.Need(w.dir().as(), objects.PermExec)); err != nil {
			return err
		}
		name := parts[0]
		parts = parts[1:]
		if done, err := w.dot(name); err != nil {
			return err
		} else if done {
			continue
		}
		next, err := w.look(name)
		switch {
		case err != nil:
			return err
		case next.ino == 0 && len(parts) > 0:
			return syscall.ENOENT
		case next.is(syscall.S_IFLNK) && (len(parts) > 0 || follow):
			if len(parts) == 0 && w.isSetUp(&next) {
				w.guest.forget(&next)
				return syscall.EACCES
			}
			more, err := w.link(&next)
			if err != nil {
				return err
			}
			parts = append(more, parts...)
		case len(parts) > 0:
			w.dirs = append(w.dirs, next)
		default:
			w.last, w.found = name, next
		}
	}
	return nil
}

// isSetUp reports whether another user, and not the owner of the directory, has put a file or link
// into a directory in which everybody may create names. Most kernels follow no such link, and open
// no such file with O_CREAT (fs.protected_symlinks, fs.protected_regular): it may be there so that the
// user writes to what somebody else has chosen.
func (w *walk) isSetUp(at *spot) bool {
	const both = syscall.S_ISVTX | syscall.S_IWOTH
	dir := &w.dir().attr
	return dir.Mode&both == both && at.attr.Uid != w.guest.UID && at.attr.Uid != dir.Uid
}

// begin starts at the root.
func (w *walk) begin() error {
	var out fuse.AttrOut
	header := w.guest.header(uint64(metadata.RootIno))
	if status := w.guest.raw.GetAttr(w.cancel, &fuse.GetAttrIn{InHeader: header}, &out); status != fuse.OK {
		return errOf(status)
	}
	// The root needs no reference, but is forgotten like the other directories.
	w.dirs = append(w.dirs, spot{uint64(metadata.RootIno), out.Attr})
	return nil
}

// dot follows "." and "..", which only the targets of links contain.
func (w *walk) dot(name string) (done bool, err error) {
	switch name {
	case "..":
		if len(w.dirs) == 1 {
			return true, syscall.EXDEV
		}
		w.guest.forget(w.dir())
		w.dirs = w.dirs[:len(w.dirs)-1]
		return true, nil
	case ".":
		return true, nil
	}
	return false, nil
}

// look finds a name in the current directory; the inode is 0 if there is none.
func (w *walk) look(name string) (spot, error) {
	var out fuse.EntryOut
	header := w.guest.header(w.dir().ino)
	status := w.guest.raw.Lookup(w.cancel, &header, name, &out)
	if status == fuse.ENOENT {
		return spot{}, nil
	}
	return spot{out.NodeId, out.Attr}, errOf(status)
}

// link returns the parts of the target of a link, and drops its reference.
func (w *walk) link(at *spot) ([]string, error) {
	header := w.guest.header(at.ino)
	target, status := w.guest.raw.Readlink(w.cancel, &header)
	w.guest.forget(at)
	w.links++
	switch {
	case status != fuse.OK:
		return nil, errOf(status)
	case w.links > maxLinks:
		return nil, syscall.ELOOP
	case len(target) == 0:
		return nil, syscall.ENOENT
	case target[0] == '/':
		return nil, syscall.EXDEV
	}
	parts := strings.Split(string(target), "/")
	kept := parts[:0]
	for _, part := range parts {
		if part != "" {
			kept = append(kept, part)
		}
	}
	return kept, nil
}
