package fs

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/fs/activity"
)

type operation uint8

// The kinds of requests that the kernel sends.
const (
	opLookup operation = iota
	opForget
	opGetAttr
	opSetAttr
	opReadlink
	opSymlink
	opMknod
	opMkdir
	opUnlink
	opRmdir
	opRename
	opLink
	opOpen
	opRead
	opWrite
	opStatFs
	opRelease
	opFlush
	opFsync
	opSetXattr
	opGetXattr
	opListXattr
	opRemoveXattr
	opOpenDir
	opReadDir
	opReadDirPlus
	opReleaseDir
	opFsyncDir
	opAccess
	opCreate
	opTmpfile
	opIoctl
	opFallocate
	opLseek
	opCopyFileRange
	opStatx
	opLock
	operations // number of kinds
)

func (o operation) String() string {
	return [operations]string{
		"lookup", "forget", "getattr", "setattr", "readlink", "symlink",
		"mknod", "mkdir", "unlink", "rmdir", "rename", "link", "open", "read",
		"write", "statfs", "release", "flush", "fsync", "setxattr",
		"getxattr", "listxattr", "removexattr", "opendir", "readdir",
		"readdirplus", "releasedir", "fsyncdir", "access", "create",
		"tmpfile", "ioctl", "fallocate", "lseek", "copy_file_range", "statx",
		"lock",
	}[o]
}

// counters counts requests of every kind, and records who moves bytes and what took long.
type counters struct {
	kinds [operations]struct {
		count, errors, nanos, bytes atomic.Uint64
		_                           [32]byte // one cache line for each kind
	}
	processes activity.Processes
	slow      activity.SlowLog
}

// done counts a request that ended with status. It is deferred at the start of the request.
func (c *counters) done(o operation, start time.Time, status *fuse.Status) {
	c.slow.Note(o.String(), c.waited(o, start, status), 0, -1)
}

// waited is done for a request that waits for events, which is never slow. It returns the time that
// the request took.
func (c *counters) waited(o operation, start time.Time, status *fuse.Status) time.Duration {
	row, took := &c.kinds[o], time.Since(start)
	row.count.Add(1)
	row.nanos.Add(uint64(took))
	if isFailure(*status) {
		row.errors.Add(1)
	}
	return took
}

// moved counts the bytes of a request. Those of guests are counted where their calls are.
func (c *counters) moved(o operation, by *fuse.Caller, n int) {
	c.kinds[o].bytes.Add(uint64(n))
	if by.Pid&guestBit != 0 {
		return
	}
	read, written := uint64(n), uint64(n) // a copy does both
	switch o {
	case opRead:
		written = 0
	case opWrite:
		read = 0
	default:
	}
	c.processes.Note(int(by.Pid), int(by.Uid), read, written)
}

// isFailure distinguishes failures from answers that only say that something does not exist
// or does not fit.
func isFailure(status fuse.Status) bool {
	switch status {
	case fuse.OK, fuse.ENOENT, fuse.ENODATA, fuse.ERANGE, errNoData, errNotSupported, errNoTTY:
		return false
	default:
		return true
	}
}

// rows returns the counters of the kinds seen so far, by name.
func (c *counters) rows() []OperationStats {
	rows := []OperationStats{}
	for o := range operations {
		row := &c.kinds[o]
		count := row.count.Load()
		if count == 0 {
			continue
		}
		rows = append(rows, OperationStats{
			Name:    o.String(),
			Count:   count,
			Errors:  row.errors.Load(),
			Seconds: time.Duration(row.nanos.Load()).Seconds(),
			Bytes:   row.bytes.Load(),
		})
	}
	slices.SortFunc(rows, func(a, b OperationStats) int { return cmp.Compare(a.Name, b.Name) })
	return rows
}
