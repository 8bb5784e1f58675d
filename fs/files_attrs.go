package fs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// statOf converts attributes.
func statOf(a *fuse.Attr) syscall.Stat_t {
	st := syscall.Stat_t{
		Ino: a.Ino, Size: int64(a.Size), Blocks: int64(a.Blocks),
		Mode: a.Mode, Uid: a.Uid, Gid: a.Gid, Rdev: uint64(a.Rdev),
		Atim: syscall.Timespec{Sec: int64(a.Atime), Nsec: int64(a.Atimensec)},
		Mtim: syscall.Timespec{Sec: int64(a.Mtime), Nsec: int64(a.Mtimensec)},
		Ctim: syscall.Timespec{Sec: int64(a.Ctime), Nsec: int64(a.Ctimensec)},
	}
	assign(&st.Blksize, a.Blksize)
	assign(&st.Nlink, a.Nlink)
	return st
}

// assign sets a field whose type differs between architectures.
func assign[T ~int32 | ~int64 | ~uint32 | ~uint64](to *T, v uint32) { *to = T(v) }

// Stat describes a file.
func (g *Guest) Stat(ctx context.Context, name string, follow bool) (st syscall.Stat_t, err error) {
	err = g.at(ctx, name, follow, func(w *walk) error {
		at, fault := w.target()
		if fault == nil {
			st = statOf(&at.attr)
		}
		return fault
	})
	return st, err
}

// Made reports whether a name leads to an inode of a type that belongs to the user and was made between two times, and returns its
// number. It follows no symbolic link.
func (g *Guest) Made(ctx context.Context, name string, kind uint32, from, to time.Time) (ino uint64, made bool) {
	err := g.at(ctx, name, false, func(w *walk) error {
		at, fault := w.target()
		if fault != nil || !at.is(kind) || at.attr.Uid != g.UID {
			return fault
		}
		var out fuse.StatxOut
		in := fuse.StatxIn{InHeader: g.header(at.ino)}
		if status := g.raw.Statx(w.cancel, &in, &out); status != fuse.OK {
			return errOf(status)
		}
		born := time.Unix(int64(out.Btime.Sec), int64(out.Btime.Nsec))
		ino, made = at.attr.Ino, !born.Before(from) && born.Before(to)
		return nil
	})
	return ino, made && err == nil
}

// Ino returns the number of a file in the store of this node, for calls that take one, and for a
// tensor by its name the file that it is in, and its path there.
//
// Errors: EOPNOTSUPP for what is not such a file.
func (g *Guest) Ino(ctx context.Context, name string) (ino metadata.Ino, tensor string, err error) {
	err = g.at(ctx, name, true, func(w *walk) error {
		at, fault := w.target()
		if fault != nil {
			return fault
		}
		if ino = metadata.Ino(at.ino); isView(ino) {
			var ok bool
			if ino, tensor, ok = g.fs.views.tensor(ino); ok {
				return nil
			}
		}
		if !isOwn(ino) || !at.is(syscall.S_IFREG) {
			return syscall.EOPNOTSUPP
		}
		return nil
	})
	return ino, tensor, err
}

// Change changes attributes. A time whose nanoseconds are UTIME_NOW is set to the present.
func (g *Guest) Change(ctx context.Context, name string, follow bool, c objects.Change) error {
	return g.at(ctx, name, follow, func(w *walk) error {
		at, err := w.target()
		if err != nil {
			return err
		}
		return g.change(w.cancel, at, c, nil)
	})
}

// change changes the attributes of an inode, which by, unless it is nil, has open.
func (g *Guest) change(cancel <-chan struct{}, at *spot, c objects.Change, by *Opened) error {
	switch {
	case g.frozen:
		return syscall.EROFS
	case c.Size != nil && at.isDir():
		return syscall.EISDIR
	case c.Size != nil && !at.is(syscall.S_IFREG):
		return syscall.EINVAL
	case c.Mode != nil && at.is(syscall.S_IFLNK):
		return syscall.EOPNOTSUPP
	}
	rights := cluster.ChangeRights{Writer: by != nil && c.Size != nil, Present: isNow(c.Atime) && isNow(c.Mtime)}
	if err := g.denied(g.PermitChange(at.as(), &c, rights)); err != nil {
		return err
	}
	in := requestOf(c)
	in.InHeader = g.header(at.ino)
	if by != nil {
		in.Valid |= fuse.FATTR_FH
		in.Fh = by.fh
	}
	var out fuse.AttrOut
	status := g.raw.SetAttr(cancel, &in, &out)
	if status == fuse.OK {
		g.touched(at.ino, 0)
	}
	return errOf(status)
}

func isNow(t *metadata.Timespec) bool { return t == nil || t.Nsec == unix.UTIME_NOW }

// requestOf is the opposite of changeOf.
func requestOf(c objects.Change) (in fuse.SetAttrIn) {
	if c.Mode != nil {
		in.Valid |= fuse.FATTR_MODE
		in.Mode = uint32(*c.Mode)
	}
	if c.UID != nil {
		in.Valid |= fuse.FATTR_UID
		in.Uid = *c.UID
	}
	if c.GID != nil {
		in.Valid |= fuse.FATTR_GID
		in.Gid = *c.GID
	}
	if c.Size != nil {
		in.Valid |= fuse.FATTR_SIZE
		in.Size = *c.Size
	}
	if c.KillPriv {
		in.Valid |= fuse.FATTR_KILL_SUIDGID
	}
	in.Valid |= request(c.Atime, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, &in.Atime, &in.Atimensec)
	in.Valid |= request(c.Mtime, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, &in.Mtime, &in.Mtimensec)
	return in
}

// request is the opposite of timeOf.
func request(t *metadata.Timespec, set, now uint32, sec *uint64, nsec *uint32) uint32 {
	switch {
	case t == nil:
		return 0
	case t.Nsec == unix.UTIME_NOW:
		return set | now
	}
	*sec, *nsec = uint64(t.Sec), t.Nsec
	return set
}

// StatFS returns the use of the device that a file is on.
func (g *Guest) StatFS(ctx context.Context, name string) (usage devices.Usage, err error) {
	err = g.at(ctx, name, true, func(w *walk) error { //nolint:contextcheck // the request ends with the channel
		at, fault := w.target()
		if fault != nil {
			return fault
		}
		header := g.header(at.ino)
		usage, fault = usageOf(g.fs, w.cancel, &header)
		return g.denied(fault)
	})
	return usage, err
}

// attribute calls do for an inode whose attribute the user may access.
func (g *Guest) attribute(
	ctx context.Context, name, attribute string, access cluster.XattrAccess, do func(w *walk, at *spot) fuse.Status,
) error {
	if strings.ContainsRune(attribute, 0) {
		return syscall.EINVAL
	}
	if attribute == "" || len(attribute) > metadata.MaxName {
		return syscall.ERANGE
	}
	return g.at(ctx, name, true, func(w *walk) error {
		at, err := w.target()
		if err != nil {
			return err
		}
		if g.frozen && access == cluster.XattrWrite {
			return syscall.EROFS
		}
		if status := checkXattr(attribute); status != fuse.OK {
			return errOf(status)
		}
		if err = g.denied(g.PermitXattr(at.as(), attribute, access)); err != nil {
			return err
		}
		status := do(w, at)
		if status == fuse.OK && access == cluster.XattrWrite {
			g.touched(at.ino, 0)
		}
		return errOf(status)
	})
}

// Attribute returns an extended attribute.
func (g *Guest) Attribute(ctx context.Context, name, attribute string) (value []byte, err error) {
	err = g.attribute(ctx, name, attribute, cluster.XattrRead, func(w *walk, at *spot) fuse.Status {
		header := g.header(at.ino)
		value = make([]byte, metadata.MaxXattr)
		n, status := g.raw.GetXAttr(w.cancel, &header, attribute, value)
		value = value[:min(int(n), len(value))]
		return status
	})
	return value, err
}

// SetAttribute sets an extended attribute. flags are those of setxattr(2).
//
// Errors: a syscall.Errno, or a *RefusedError around one.
func (g *Guest) SetAttribute(ctx context.Context, name, attribute string, value []byte, flags uint32) error {
	var why error
	err := g.attribute(ctx, name, attribute, cluster.XattrWrite, func(w *walk, at *spot) (status fuse.Status) { //nolint:contextcheck // the request ends with the channel
		in := fuse.SetXAttrIn{InHeader: g.header(at.ino), Size: uint32(len(value)), Flags: flags}
		status, why = setXattr(g.fs, w.cancel, &in, attribute, value)
		return status
	})
	if fault, is := errors.AsType[syscall.Errno](err); is {
		return &RefusedError{Errno: fault, Text: refusalOf(fault, attribute, value, why)}
	}
	return err
}

// RefusedError is an errno with a text that says more. It wraps the errno.
type RefusedError struct {
	Errno syscall.Errno
	Text  string
}

// Error returns the text.
func (e *RefusedError) Error() string { return e.Text }

// Unwrap returns the errno.
func (e *RefusedError) Unwrap() error { return e.Errno }

// refusalOf says which attribute was not set to what, and what is allowed. why may be nil.
func refusalOf(fault syscall.Errno, attribute string, value []byte, why error) string {
	switch {
	case why != nil && fault != syscall.EIO: // the log has what the state of the daemon is the reason of
		said := strings.NewReplacer(": metadata: ", ": ", ": objects: ", ": ").Replace(": " + why.Error())
		return fmt.Sprintf("%v: %s = %.80q%s", fault, attribute, value, said)
	case fault == syscall.ERANGE:
		return fmt.Sprintf("%v: a name of an attribute has 1 to %d bytes", fault, metadata.MaxName)
	case fault == syscall.E2BIG:
		return fmt.Sprintf("%v: %s: %d bytes, at most %d", fault, attribute, len(value), metadata.MaxXattr)
	case fault == syscall.EOPNOTSUPP || fault == syscall.EINVAL:
		return fmt.Sprintf("%v: %.80q: a name begins with user., trusted. or security., and more follows", fault, attribute)
	}
	return fmt.Sprintf("%v: %s = %.80q", fault, attribute, value)
}

// RemoveAttribute removes an extended attribute.
func (g *Guest) RemoveAttribute(ctx context.Context, name, attribute string) error {
	return g.attribute(ctx, name, attribute, cluster.XattrWrite, func(w *walk, at *spot) fuse.Status {
		header := g.header(at.ino)
		return g.raw.RemoveXAttr(w.cancel, &header, attribute)
	})
}

// Attributes returns the names of the extended attributes that the user may know of.
func (g *Guest) Attributes(ctx context.Context, name string) (names []string, err error) {
	err = g.at(ctx, name, true, func(w *walk) error { //nolint:contextcheck // the request ends with the channel
		at, fault := w.target()
		if fault != nil {
			return fault
		}
		header := g.header(at.ino)
		names, fault = g.fs.xattrs(w.cancel, &header)
		names = slices.DeleteFunc(names, func(one string) bool { return !g.MayKnowXattr(one) })
		return g.denied(fault)
	})
	return names, err
}
