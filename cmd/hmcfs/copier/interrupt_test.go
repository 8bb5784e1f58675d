package copier

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestInterruptiblyEndsASystemCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	var err error
	Interruptibly(ctx, func() {
		_, err = unix.Ppoll(nil, &unix.Timespec{Sec: 600}, nil)
	})
	if err != unix.EINTR {
		t.Errorf("the call ended with %v", err)
	}
}

func TestInterruptiblyLetsACallEnd(t *testing.T) {
	ran := false
	Interruptibly(t.Context(), func() { ran = true })
	if !ran {
		t.Error("the call did not run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Interruptibly(ctx, func() {}) // nudged at once, and nothing is left behind
}
