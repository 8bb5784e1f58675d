package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Ioctl knows none. So chattr's immutable and append-only flags are refused
// rather than kept without effect.
func (f *filesystem) Ioctl(_ <-chan struct{}, _ *fuse.IoctlIn, _ []byte, _ *fuse.IoctlOut, _ []byte) (status fuse.Status) {
	defer f.ops.done(opIoctl, time.Now(), &status)
	return errNoTTY
}

// GetLk is not asked: locks are not negotiated, so the kernel keeps them by
// itself. One kernel is all that has the tree, so they hold for everyone.
func (f *filesystem) GetLk(<-chan struct{}, *fuse.LkIn, *fuse.LkOut) fuse.Status {
	return f.lock()
}

// SetLk is not asked, as GetLk.
func (f *filesystem) SetLk(<-chan struct{}, *fuse.LkIn) fuse.Status { return f.lock() }

// SetLkw is not asked, as GetLk.
func (f *filesystem) SetLkw(<-chan struct{}, *fuse.LkIn) fuse.Status { return f.lock() }

func (f *filesystem) lock() (status fuse.Status) {
	defer f.ops.done(opLock, time.Now(), &status)
	return errNotSupported
}
