package fs

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// killedPoll is the interval at which an interrupted request checks again whether its
// caller has been killed: the kernel reports the first signal only.
const killedPoll = 100 * time.Millisecond

// untilKilled returns a context for a request that ends only when its caller is killed. Other
// signals do not end it: programs that send signals to themselves, as Go programs do, would
// never complete a long operation. release must be called.
func untilKilled(interrupt <-chan struct{}, pid uint32) (ctx context.Context, release func()) {
	ctx, release = context.WithCancel(background())
	go func() {
		select {
		case <-interrupt:
		case <-ctx.Done():
			return
		}
		tick := time.Tick(killedPoll)
		for !isKilled(pid) {
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
		}
		release()
	}()
	return ctx, release
}

// isKilled reports whether a thread is about to die. When any signal terminates a process,
// the kernel makes SIGKILL pending for every one of its threads.
func isKilled(pid uint32) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return pid != 0 && os.IsNotExist(err)
	}
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "SigPnd:"); ok {
			pending, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			const sigkill = 1 << (9 - 1)
			return err == nil && pending&sigkill != 0
		}
	}
	return false
}
