package fs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// openFlags are the flags of open(2) that Open accepts.
const openFlags = syscall.O_ACCMODE | syscall.O_CREAT | syscall.O_EXCL | syscall.O_TRUNC | syscall.O_APPEND |
	syscall.O_DIRECTORY | syscall.O_NOFOLLOW | syscall.O_CLOEXEC | syscall.O_SYNC | syscall.O_LARGEFILE | syscall.O_NONBLOCK

// Opened is an open file or directory of a guest. Its methods may be called from any goroutine.
type Opened struct {
	guest *Guest
	// at has the reference of the open file. Its attributes are those at the open.
	at spot
	// fh is the handle of a file, and dir that of a directory.
	fh    uint64
	dir   *dirHandle
	flags uint32
}

// Open opens a file, or a directory for reading. flags are those of open(2), perm is the mode of a
// file that it creates.
func (g *Guest) Open(ctx context.Context, name string, flags, perm uint32) (o *Opened, err error) {
	if flags&^openFlags != 0 || flags&syscall.O_ACCMODE == syscall.O_ACCMODE ||
		flags&syscall.O_CREAT != 0 && flags&syscall.O_DIRECTORY != 0 {
		return nil, syscall.EINVAL
	}
	exclusive := flags&syscall.O_CREAT != 0 && flags&syscall.O_EXCL != 0
	follow := flags&syscall.O_NOFOLLOW == 0 && !exclusive
	err = g.at(ctx, name, follow, func(w *walk) error { //nolint:contextcheck // the request ends with the channel
		at, fault := w.target()
		switch {
		case fault != nil && flags&syscall.O_CREAT != 0:
			o, fault = w.createOpen(flags, perm)
		case fault != nil:
		case exclusive:
			fault = syscall.EEXIST
		case flags&syscall.O_CREAT != 0 && w.last != "" && at.is(syscall.S_IFREG) && w.isSetUp(at):
			fault = syscall.EACCES
		default:
			o, fault = w.open(at, flags)
		}
		return fault
	})
	return o, err
}

// createOpen creates the file and opens it.
func (w *walk) createOpen(flags, perm uint32) (*Opened, error) {
	g := w.guest
	if err := w.vacant(); err != nil {
		return nil, err
	}
	n := metadata.Node{Mode: metadata.TypeRegular | metadata.Mode(perm&0o7777)}
	if err := g.denied(g.PermitCreate(w.dir().as(), &n)); err != nil {
		return nil, err
	}
	var out fuse.CreateOut
	in := fuse.CreateIn{InHeader: g.header(w.dir().ino), Flags: flags | syscall.O_EXCL, Mode: uint32(n.Mode)}
	status := g.raw.Create(w.cancel, &in, w.last, &out)
	if status == fuse.Status(syscall.EEXIST) && flags&syscall.O_EXCL == 0 {
		status = errStale // it was created meanwhile
	}
	if status != fuse.OK {
		return nil, errOf(status)
	}
	g.touched(0, w.dir().ino)
	return &Opened{guest: g, at: spot{out.NodeId, out.Attr}, fh: out.Fh, flags: flags}, nil
}

// open opens an inode that the walk has reached, whose reference becomes that of the open file.
func (w *walk) open(at *spot, flags uint32) (*Opened, error) {
	g := w.guest
	if err := g.mayOpen(at, flags); err != nil {
		return nil, err
	}
	o := &Opened{guest: g, flags: flags}
	if at.isDir() {
		header := g.header(at.ino)
		var err error
		if o.dir, err = g.fs.newDirHandle(w.cancel, &header, metadata.Ino(at.ino)); err != nil {
			return nil, errOf(g.fs.errs.inodeStatus(err))
		}
		o.keep(w, at)
		return o, nil
	}
	var out fuse.OpenOut
	if status := g.raw.Open(w.cancel, &fuse.OpenIn{InHeader: g.header(at.ino), Flags: flags &^ syscall.O_CREAT}, &out); status != fuse.OK {
		return nil, errOf(status)
	}
	o.fh = out.Fh
	missed := w.hasMissed(at, o.fh)
	o.keep(w, at)
	if missed {
		o.Close()
		return nil, errOf(errStale)
	}
	if flags&syscall.O_TRUNC == 0 {
		return o, nil
	}
	err := g.change(w.cancel, &o.at, objects.Change{Size: new(uint64)}, o)
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// hasMissed reports whether another user has received the file, which the walk has found in publish/,
// before it was opened.
func (w *walk) hasMissed(at *spot, fh uint64) bool {
	if at != &w.found || w.dir().ino != uint64(metadata.PublishIno) {
		return false
	}
	h, ok := w.guest.fs.files.get(fh)
	return ok && !h.published
}

// keep takes the reference of an inode from a walk.
func (o *Opened) keep(w *walk, at *spot) {
	o.at = *at
	if at == &w.found {
		w.found = spot{}
		return
	}
	w.dirs = w.dirs[:len(w.dirs)-1] // a directory that is not the last part of the name
}

// mayOpen checks what the kernel checks before it opens an inode.
func (g *Guest) mayOpen(at *spot, flags uint32) error {
	writes := isWriting(flags) || flags&syscall.O_TRUNC != 0
	switch {
	case at.is(syscall.S_IFLNK):
		return syscall.ELOOP
	case at.isDir() && (writes || flags&syscall.O_CREAT != 0):
		return syscall.EISDIR
	case !at.isDir() && flags&syscall.O_DIRECTORY != 0:
		return syscall.ENOTDIR
	case !at.isDir() && !at.is(syscall.S_IFREG):
		return syscall.ENXIO
	case writes && g.frozen:
		return syscall.EROFS
	}
	want := accessOf(flags)
	if writes {
		want |= objects.PermWrite
	}
	return g.denied(g.Need(at.as(), want))
}

// Close closes the file. It must be called once, when no other call is in progress.
func (o *Opened) Close() {
	g := o.guest
	if o.dir == nil {
		header := g.header(o.at.ino)
		_ = g.raw.Flush(nil, &fuse.FlushIn{InHeader: header, Fh: o.fh}) // it fails for no file
		g.raw.Release(nil, &fuse.ReleaseIn{InHeader: header, Fh: o.fh})
	}
	g.forget(&o.at)
}

// Stat describes the file.
func (o *Opened) Stat(ctx context.Context) (syscall.Stat_t, error) {
	var out fuse.AttrOut
	in := fuse.GetAttrIn{InHeader: o.guest.header(o.at.ino)}
	status := o.guest.raw.GetAttr(ctx.Done(), &in, &out)
	return statOf(&out.Attr), errOf(status)
}

// Truncate changes the size of a file that is open for writing.
func (o *Opened) Truncate(ctx context.Context, size uint64) error {
	if o.dir != nil || !isWriting(o.flags) {
		return syscall.EINVAL
	}
	return o.guest.change(ctx.Done(), &o.at, objects.Change{Size: &size}, o)
}

// Sync returns when the content is as durable as the device makes it.
func (o *Opened) Sync(ctx context.Context) error {
	if o.dir != nil {
		return nil
	}
	in := fuse.FsyncIn{InHeader: o.guest.header(o.at.ino), Fh: o.fh}
	return errOf(o.guest.raw.Fsync(ctx.Done(), &in))
}

// Entry is one entry of a directory.
type Entry struct {
	Name string
	Ino  uint64
	// Type has the type bits of the mode.
	Type uint32
	// Next is the cookie after which the listing continues.
	Next uint64
}

// List passes the entries after a cookie, 0 at first, to each until it returns false. Without a
// call of each the directory has ended.
//
// Errors: ENOTDIR.
func (o *Opened) List(ctx context.Context, after uint64, each func(Entry) bool) error {
	h := o.dir
	if h == nil {
		return syscall.ENOTDIR
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := max(after, dotsEnd); ; {
		entries, err := h.after(ctx, at, o.guest.fs.names.Load())
		if err != nil {
			return o.guest.denied(err)
		}
		if len(entries) == 0 {
			return nil
		}
		for i := range entries {
			e := &entries[i]
			at = e.offset
			if !each(Entry{e.name, uint64(e.ino), uint32(e.mode.Type()), e.offset}) {
				return nil
			}
		}
	}
}
