package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// unsupported implements the operations that no file of hmcfs supports.
type unsupported struct {
	// RawFileSystem is embedded only for methods that a later go-fuse adds: every present
	// method is overridden, since go-fuse's own ones answer ENOSYS, on which the kernel
	// stops asking for good.
	fuse.RawFileSystem

	ops *counters
}

// Ioctl refuses all requests. So chattr's immutable and append-only flags are refused
// rather than stored without effect.
func (u *unsupported) Ioctl(_ <-chan struct{}, _ *fuse.IoctlIn, _ []byte, _ *fuse.IoctlOut, _ []byte) (status fuse.Status) {
	defer u.ops.done(opIoctl, time.Now(), &status)
	return errNoTTY
}

// GetLk is never called: locks are not negotiated, so the kernel keeps them itself. Only
// one kernel has the tree mounted, so they hold for all processes.
func (u *unsupported) GetLk(<-chan struct{}, *fuse.LkIn, *fuse.LkOut) fuse.Status {
	return u.lock()
}

// SetLk is never called; see GetLk.
func (u *unsupported) SetLk(<-chan struct{}, *fuse.LkIn) fuse.Status { return u.lock() }

// SetLkw is never called; see GetLk.
func (u *unsupported) SetLkw(<-chan struct{}, *fuse.LkIn) fuse.Status { return u.lock() }

func (u *unsupported) lock() (status fuse.Status) {
	defer u.ops.done(opLock, time.Now(), &status)
	return errNotSupported
}

// SetDebug does nothing: Options.Debug decides.
func (u *unsupported) SetDebug(bool) {}

// OnUnmount is called after the last request.
func (u *unsupported) OnUnmount() {}
