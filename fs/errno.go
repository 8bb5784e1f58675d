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

// errnoRule says which errno an error is told by.
type errnoRule struct {
	err   error
	errno syscall.Errno
}

// errnoRules is the whole mapping, in order: the first error that matches
// decides. ENOSYS is not in it, since the kernel takes it to mean that the
// operation does not exist and stops asking for the life of the mount.
func errnoRules() []errnoRule {
	return []errnoRule{
		// Why a node could not be reached may be in the error too: that time
		// was up says more, that something was cancelled says less.
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

		// What the driver says of a wrong handle is a device's error too.
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

// errnoEnd is the first number that the kernel does not take for an error: the
// request that was answered by it would never end.
const errnoEnd = 512

// maxWarned bounds how many different texts are remembered of each errno.
const maxWarned = 256

// errnoTable turns errors into errnos.
type errnoTable struct {
	log   *zap.Logger
	rules []errnoRule

	mu sync.Mutex
	// warned are the texts that a warning was written for, by errno.
	// +checklocks:mu
	warned map[syscall.Errno]map[string]struct{}
}

func newErrnoTable(log *zap.Logger) *errnoTable {
	return &errnoTable{log: log, rules: errnoRules(), warned: map[syscall.Errno]map[string]struct{}{}}
}

// errno is total: nil is 0, and an error that nothing is known of is EIO. What
// is answered as EIO is logged, once for each text, since the user sees
// nothing but the number; so is a device that is full, which says how much was
// asked and how much is left.
func (t *errnoTable) errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	number := t.find(err)
	switch {
	case number == syscall.EIO:
		t.warn(number, "request failed with an input/output error", err)
	case errors.Is(err, devices.ErrOutOfMemory):
		t.warn(number, "request failed for want of device memory", err)
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

// status is errno as go-fuse wants it.
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

// onceError is an error that is warned of once for its key, whatever it says.
type onceError struct {
	error
	key string
}

func (e *onceError) Unwrap() error { return e.error }

// first says whether a text comes for the first time. When too many have
// come, it says no.
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

// dataStatus answers a request about an open file that ended with err. That its node
// can't be reached is EIO: programs know that of a read or a write, and EHOSTUNREACH they
// don't.
func (t *errnoTable) dataStatus(err error) fuse.Status {
	status := t.status(err)
	if status == fuse.Status(syscall.EHOSTUNREACH) {
		t.warn(syscall.EIO, "file of another node failed", err)
		return fuse.EIO
	}
	return status
}

// inodeStatus answers a question about an inode that ended with err. Its name was found a
// moment ago, so that the inode is gone means that the name is another's now, and ESTALE
// makes the kernel look it up again.
func (t *errnoTable) inodeStatus(err error) fuse.Status {
	if isMissing(err) {
		return errStale
	}
	return t.status(err)
}
