package fs

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

type errnoRule struct {
	err   error
	errno syscall.Errno
}

// errnoRules returns the whole mapping, in order: the first error that matches decides.
// ENOSYS is not in it, since the kernel takes it to mean that the operation is not
// implemented and stops sending it for the life of the mount.
func errnoRules() []errnoRule {
	return []errnoRule{
		// The reason why a node could not be reached may be part of the error: a timeout is
		// more informative than that, a cancellation is less.
		{context.DeadlineExceeded, syscall.ETIMEDOUT},
		{cluster.ErrUnreachable, syscall.EHOSTUNREACH},
		{cluster.ErrVersion, syscall.EHOSTUNREACH},
		{cluster.ErrStale, syscall.ESTALE},
		{cluster.ErrDenied, syscall.EACCES},
		{cluster.ErrNoNode, syscall.ENOENT},
		{context.Canceled, syscall.EINTR},

		{metadata.ErrNotExist, syscall.ENOENT},
		{metadata.ErrExist, syscall.EEXIST},
		{metadata.ErrNotDir, syscall.ENOTDIR},
		{metadata.ErrIsDir, syscall.EISDIR},
		{metadata.ErrNotEmpty, syscall.ENOTEMPTY},
		{metadata.ErrNameTooLong, syscall.ENAMETOOLONG},
		{metadata.ErrInvalidName, syscall.EINVAL},
		{metadata.ErrInvalid, syscall.EINVAL},
		{metadata.ErrInvalidKey, syscall.EINVAL},
		{metadata.ErrPermission, syscall.EPERM},
		{metadata.ErrCrossDevice, syscall.EXDEV},
		{metadata.ErrTooManyLinks, syscall.EMLINK},
		{metadata.ErrNoXattr, syscall.ENODATA},
		{metadata.ErrRange, syscall.ERANGE},
		{metadata.ErrFull, syscall.ENOSPC},
		{metadata.ErrXattrSpace, syscall.ENOSPC},
		{metadata.ErrQuota, syscall.EDQUOT},
		{metadata.ErrTooLarge, syscall.E2BIG},
		{metadata.ErrNoSpace, syscall.ENOSPC},

		{devices.ErrOutOfMemory, syscall.ENOSPC},
		{objects.ErrLost, syscall.EIO},
		{objects.ErrDamaged, syscall.EIO},
		{objects.ErrUnsupported, syscall.EOPNOTSUPP},
		{objects.ErrReadOnly, syscall.EOPNOTSUPP},
		{objects.ErrInvalid, syscall.EINVAL},
		{objects.ErrNoData, syscall.ENXIO},
		{objects.ErrTooLarge, syscall.EFBIG},
		{objects.ErrBusy, syscall.EBUSY},
		{objects.ErrForbidden, syscall.EPERM},
		{objects.ErrInconsistent, syscall.EIO},
		{objects.ErrWithdrawn, syscall.ENOENT},
		{objects.ErrClosed, syscall.ESHUTDOWN},

		// A driver's error about a wrong handle is an ErrDevice too, so this rule comes
		// first.
		{devices.ErrHandle, syscall.EINVAL},
		{devices.ErrLost, syscall.EIO},
		{devices.ErrClosed, syscall.EIO},
		{devices.ErrNoDevice, syscall.EIO},
		{devices.ErrForeign, syscall.EIO},
		{devices.ErrRange, syscall.EIO},
		{devices.ErrDevice, syscall.EIO},
		{devices.ErrUnsupported, syscall.EOPNOTSUPP},

		{metadata.ErrNoKey, syscall.EIO},
		{metadata.ErrReadOnly, syscall.EIO},
		{metadata.ErrClosed, syscall.EIO},
		{metadata.ErrChanged, syscall.EIO},
		{metadata.ErrNewer, syscall.EIO},
		{metadata.ErrCorrupt, syscall.EIO},

		{fs.ErrClosed, syscall.EIO},
	}
}

// errnoEnd is the first number that the kernel does not accept as an error: a request
// answered with it would never end.
const errnoEnd = 512

// maxWarned bounds the number of different texts remembered for each errno.
const maxWarned = 256

type errnoTable struct {
	log   *zap.Logger
	rules []errnoRule

	mu sync.Mutex
	// warned holds the texts that have been logged, by errno.
	// +checklocks:mu
	warned map[syscall.Errno]map[string]struct{}
}

func newErrnoTable(log *zap.Logger) *errnoTable {
	return &errnoTable{log: log, rules: errnoRules(), warned: map[syscall.Errno]map[string]struct{}{}}
}

// errno converts any error: nil is 0, and an unknown error is EIO. Every EIO is logged,
// once for each text, since the user sees nothing but the number; so is a device that is
// full, with the requested and the remaining size.
func (t *errnoTable) errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	number := t.find(err)
	switch {
	case number == syscall.EIO:
		t.warn(number, "request failed with an input/output error", err)
	case errors.Is(err, devices.ErrOutOfMemory):
		t.warn(number, "request failed: out of device memory", err)
	}
	return number
}

func (t *errnoTable) find(err error) syscall.Errno {
	for i := range t.rules {
		if errors.Is(err, t.rules[i].err) {
			return t.rules[i].errno
		}
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok && number != 0 && number != syscall.ENOSYS && number < errnoEnd {
		return number
	}
	return syscall.EIO
}

// status returns errno as a go-fuse status.
func (t *errnoTable) status(err error) fuse.Status { return fuse.Status(t.errno(err)) }

func (t *errnoTable) warn(number syscall.Errno, message string, err error) {
	text := err.Error()
	if once, ok := errors.AsType[*onceError](err); ok {
		text = once.key
	}
	if t.first(number, text) {
		t.log.Warn(message, zap.Error(err))
	}
}

// onceError is an error that is logged once for its key, whatever its text.
type onceError struct {
	error
	key string
}

func (e *onceError) Unwrap() error { return e.error }

// first reports whether a text is new. It returns false once too many texts have been
// recorded.
func (t *errnoTable) first(number syscall.Errno, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	texts := t.warned[number]
	if texts == nil {
		texts = make(map[string]struct{})
		t.warned[number] = texts
	}
	if _, seen := texts[text]; seen || len(texts) >= maxWarned {
		return false
	}
	texts[text] = struct{}{}
	return true
}

// dataStatus converts err, the result of a request about an open file. An unreachable node
// is EIO: programs expect that of a read or a write, but not EHOSTUNREACH.
func (t *errnoTable) dataStatus(err error) fuse.Status {
	status := t.status(err)
	if status == fuse.Status(syscall.EHOSTUNREACH) {
		t.warn(syscall.EIO, "request for a file of another node failed", err)
		return fuse.EIO
	}
	return status
}

// inodeStatus converts err, the result of a request about an inode. The inode's name was
// looked up a moment ago, so a missing inode means that the name now belongs to another
// inode; ESTALE makes the kernel repeat the lookup.
func (t *errnoTable) inodeStatus(err error) fuse.Status {
	if isMissing(err) {
		return errStale
	}
	return t.status(err)
}
