package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

const (
	// answerLimit bounds the time for a daemon to answer a request for its version, for
	// which it accesses no device and no file.
	answerLimit = 5 * time.Second
	// askAgain is the interval at which a daemon that executes a long request is probed.
	askAgain = time.Second
)

// unresponsiveError is the error for a daemon that has its socket but does not answer on
// it.
type unresponsiveError struct {
	mountPoint string
	// pid is the process ID of the daemon; 0 if this user may not see it.
	pid  int
	lock string
}

// Error names the daemon, whether it is stopped, and the remedy.
func (e *unresponsiveError) Error() string {
	out := "remove the mount without it: hmcfs umount --force " + e.mountPoint
	if _, served := servedAt(e.mountPoint); served {
		out = "end it: kill -KILL its process; the next hmcfs serve recovers what it can"
	}
	switch {
	case e.pid == 0:
		return "the daemon does not answer; " + out
	case isStopped(e.pid):
		return fmt.Sprintf("the daemon, process %d, is stopped and does not answer; resume it: kill -CONT %d; or %s", e.pid, e.pid, out)
	}
	return fmt.Sprintf("the daemon, process %d, does not answer; %s", e.pid, out)
}

// servedAt is place.ServedAt for a path at which a mount may be that does not answer: it accesses
// no mount.
func servedAt(path string) (place.Mount, bool) {
	if m, found, err := place.MountAt(path); err != nil || found && m.IsHMCFS() {
		return place.Mount{}, false
	}
	return place.ServedAt(path)
}

// isStopped reports whether a process was stopped by a signal or a debugger.
func isStopped(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// The process name before it may contain any character, even a bracket.
	text := string(data)
	state := strings.TrimSpace(text[strings.LastIndexByte(text, ')')+1:])
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}

// hear probes whether a daemon answers; it returns an *unresponsiveError if it does not
// within answerLimit.
func hear(ctx context.Context, c *client.Client, p place.Paths) (adminapi.Version, error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	v, err := c.Version(limited)
	// A socket with a full backlog refuses connections with EAGAIN.
	silent := err != nil && limited.Err() != nil || errors.Is(err, syscall.EAGAIN)
	if !silent || ctx.Err() != nil {
		return v, err
	}
	unresponsive := &unresponsiveError{mountPoint: p.MountPoint, lock: p.Lock()}
	if holder, living, err := place.ReadHolder(p.Lock()); err == nil && living {
		unresponsive.pid = holder.PID
	}
	return v, unresponsive
}

// whileResponsive runs a request to a daemon that may take long, and gives up with an
// *unresponsiveError if the daemon stops answering in the meantime.
func whileResponsive(ctx context.Context, c *client.Client, p place.Paths, ask func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			_, err := hear(ctx, c, p)
			if _, unresponsive := errors.AsType[*unresponsiveError](err); unresponsive {
				cancel(err)
			}
			if err != nil { // it is exiting, and answers the request first
				return
			}
			select {
			case <-time.After(askAgain):
			case <-ctx.Done():
				return
			}
		}
	})
	err := ask(ctx)
	if unresponsive, ok := errors.AsType[*unresponsiveError](context.Cause(ctx)); ok && err != nil {
		err = unresponsive
	}
	cancel(nil)
	asking.Wait()
	return err
}

// answers returns the result of fn, which accesses the mount itself; if the mount does not
// answer within answerLimit, it returns an *unresponsiveError, and fn may continue in the
// background.
func answers[T any](ctx context.Context, m place.Mount, fn func(mountPoint string) T) (value T, err error) {
	got := make(chan T, 1)
	go func() { got <- fn(m.MountPoint) }()
	select {
	case value = <-got:
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(answerLimit):
		err = &unresponsiveError{mountPoint: m.MountPoint}
	}
	return value, err
}
