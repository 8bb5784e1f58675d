package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// coarseNow is the clock of the records: the kernel's coarse one, which also
// stamps the files of the host tier. With a finer clock a record's time could
// lie up to a tick ahead of the files beside it.
func coarseNow() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}
