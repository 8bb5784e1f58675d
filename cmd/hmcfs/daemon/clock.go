package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// coarseNow is the clock of the records: the kernel's coarse clock, which also stamps the
// files of the host tier. With a finer clock the time of a record could be up to a tick
// ahead of those files.
func coarseNow() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}
