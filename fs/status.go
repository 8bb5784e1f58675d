package fs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Statuses that go-fuse does not name.
const (
	errNameTooLong  = fuse.Status(syscall.ENAMETOOLONG)
	errNotSupported = fuse.Status(syscall.EOPNOTSUPP)
	errNoData       = fuse.Status(syscall.ENXIO)
	errNoTTY        = fuse.Status(syscall.ENOTTY)
	errTooBig       = fuse.Status(syscall.E2BIG)
	errStale        = fuse.Status(syscall.ESTALE)
)
