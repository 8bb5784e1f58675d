package daemon

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// coarseNow is the clock of the records: the kernel's coarse clock, which also stamps the
// files of the host tier. With a finer clock the time of a record could be up to a tick
// ahead of those files. It is read for each change and many reads: the system call never blocks,
// so the runtime need not be prepared for that.
func coarseNow() time.Time {
	var ts unix.Timespec
	if _, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_REALTIME_COARSE, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}
