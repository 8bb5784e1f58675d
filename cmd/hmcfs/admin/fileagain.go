package admin

import (
	"bytes"
	"context"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// mostMade bounds the time before the start of this daemon at which a call that is asked again can have made something: it covers the
// time from the death of the daemon before.
const mostMade = 5 * time.Minute

// made reports whether a call of this user that is asked again may have made a name: it leads to an inode of the user, of a type,
// that a daemon before has made.
func (o *openFiles) made(ctx context.Context, name string, kind uint32) (ino uint64, made bool) {
	started := o.server.sessions.started
	return o.guest.Made(ctx, name, kind, started.Add(-mostMade), started)
}

// settled returns the errno of a call that was asked again: the names that it was to make or to remove may
// be, or not be, there because a daemon before has carried it out.
func (o *openFiles) settled(ctx context.Context, verb frames.FileVerb, q *frames.FileCall, fault syscall.Errno) syscall.Errno {
	if o.isDone(ctx, verb, q, fault) {
		return 0
	}
	return fault
}

// isDone reports whether an error of a call that was asked again is due to a daemon before, which has carried it out.
func (o *openFiles) isDone(ctx context.Context, verb frames.FileVerb, q *frames.FileCall, fault syscall.Errno) (done bool) {
	switch {
	case verb == frames.FileMkdir && fault == syscall.EEXIST:
		_, done = o.made(ctx, q.Name, syscall.S_IFDIR)
	case verb == frames.FileSymlink && fault == syscall.EEXIST:
		target, err := o.guest.Readlink(ctx, q.Name)
		_, done = o.made(ctx, q.Name, syscall.S_IFLNK)
		done = done && err == nil && target == q.Other
	case verb == frames.FileLink && fault == syscall.EEXIST:
		from, err := o.guest.Stat(ctx, q.Name, false)
		to, terr := o.guest.Stat(ctx, q.Other, false)
		done = err == nil && terr == nil && from.Ino == to.Ino
	case verb == frames.FileRename && fault == syscall.ENOENT:
		_, err := o.guest.Stat(ctx, q.Other, false)
		done = err == nil
	case verb == frames.FileSetAttribute && fault == syscall.EEXIST:
		value, err := o.guest.Attribute(ctx, q.Name, q.Other)
		done = err == nil && bytes.Equal(value, q.Data)
	case verb == frames.FileRemove:
		done = fault == syscall.ENOENT
	case verb == frames.FileRemoveAttribute:
		done = fault == syscall.ENODATA
	case verb == frames.FileClose:
		done = fault == syscall.EBADF
	}
	return done
}

// hadRead tells an open file of publish/ which ranges its reader has had from a daemon before.
//
// Errors: EINVAL for other data; those of Opened.Had.
func hadRead(ctx context.Context, f *fs.Opened, data []byte) error {
	had, err := frames.ParseRanges(data)
	if err != nil {
		return syscall.EINVAL
	}
	for _, r := range had {
		if err = f.Had(ctx, r.From, r.End); err != nil {
			return err
		}
	}
	return nil
}

// openMade opens a file that exists although the call was to make it, if a daemon before may have done so. fault is the error otherwise.
func (o *openFiles) openMade(ctx context.Context, q *frames.FileCall, fault error) (*fs.Opened, error) {
	ino, made := o.made(ctx, q.Name, syscall.S_IFREG)
	if !made {
		return nil, fault
	}
	flags := q.Flags&^(syscall.O_CREAT|syscall.O_EXCL|syscall.O_TRUNC) | syscall.O_NOFOLLOW
	f, err := o.guest.Open(ctx, q.Name, flags, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(ctx); err != nil || st.Ino != ino { // it was replaced meanwhile
		f.Close()
		return nil, fault
	}
	return f, nil
}
