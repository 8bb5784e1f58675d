package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// unsupported answers what no file of hmcfs does.
type unsupported struct {
	// RawFileSystem is only there for methods that a later go-fuse adds: every method of
	// today's is overridden, since its own ones answer ENOSYS, on which the kernel stops
	// asking for good.
	fuse.RawFileSystem

	ops *counters
}

// Ioctl knows none. So chattr's immutable and append-only flags are refused
// rather than kept without effect.
func (u *unsupported) Ioctl(_ <-chan struct{}, _ *fuse.IoctlIn, _ []byte, _ *fuse.IoctlOut, _ []byte) (status fuse.Status) {
	defer u.ops.done(opIoctl, time.Now(), &status)
	return errNoTTY
}

// GetLk is not asked: locks are not negotiated, so the kernel keeps them by
// itself. One kernel is all that has the tree, so they hold for everyone.
func (u *unsupported) GetLk(<-chan struct{}, *fuse.LkIn, *fuse.LkOut) fuse.Status {
	return u.lock()
}

// SetLk is not asked, as GetLk.
func (u *unsupported) SetLk(<-chan struct{}, *fuse.LkIn) fuse.Status { return u.lock() }

// SetLkw is not asked, as GetLk.
func (u *unsupported) SetLkw(<-chan struct{}, *fuse.LkIn) fuse.Status { return u.lock() }

func (u *unsupported) lock() (status fuse.Status) {
	defer u.ops.done(opLock, time.Now(), &status)
	return errNotSupported
}

// SetDebug does nothing: Options.Debug decides.
func (u *unsupported) SetDebug(bool) {}

// OnUnmount is called after the last request.
func (u *unsupported) OnUnmount() {}
