package fs

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// killedPoll is the interval at which a request that has been interrupted asks again
// whether its caller is to die: the kernel tells of the first signal only.
const killedPoll = 100 * time.Millisecond

// untilKilled is the context of a request that only the death of its caller
// ends. Other signals don't: programs that send themselves some, as Go's do,
// would never get a long operation done. release must be called.
func untilKilled(interrupt <-chan struct{}, pid uint32) (ctx context.Context, release func()) {
	ctx, release = context.WithCancel(background())
	go func() {
		select {
		case <-interrupt:
		case <-ctx.Done():
			return
		}
		tick := time.NewTicker(killedPoll)
		defer tick.Stop()
		for !isKilled(pid) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		release()
	}()
	return ctx, release
}

// isKilled says whether a thread is about to die. The kernel makes SIGKILL
// pending for every thread when a signal ends the process, whichever it was.
func isKilled(pid uint32) bool {
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return pid != 0 && os.IsNotExist(err)
	}
	defer func() { _ = status.Close() }()
	lines := bufio.NewScanner(status)
	for lines.Scan() {
		if mask, ok := strings.CutPrefix(lines.Text(), "SigPnd:"); ok {
			pending, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			const sigkill = 1 << (9 - 1)
			return err == nil && pending&sigkill != 0
		}
	}
	return false
}
