package objects

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// expireBatch is how many files are asked for at a time.
	expireBatch = 256
	// expireLook is how long the sweeper sleeps at most while a file has a time
	// to live: the clock may be set.
	expireLook = time.Minute
	// expireRetry is after how long a file is tried again that could not be
	// removed, at first and at most.
	expireRetry    = time.Second
	expireRetryMax = time.Minute
)

// expiry wakes the sweeper of expired files.
type expiry struct {
	mu sync.Mutex
	// next is when it wakes by itself; zero is never.
	// +checklocks:mu
	next metadata.Timespec
	// wake has room for one.
	wake chan struct{}
}

// note says that a file ends at a moment.
func (e *expiry) note(at metadata.Timespec) {
	none := metadata.Timespec{}
	e.mu.Lock()
	earlier := at != none && (e.next == none || e.next.After(at))
	if earlier {
		e.next = at
	}
	e.mu.Unlock()
	if earlier {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// sleeps says when the sweeper wakes. It is called before the sweeper looks for
// the last time, so that who notes an earlier moment meanwhile wakes it.
func (e *expiry) sleeps(until metadata.Timespec) {
	e.mu.Lock()
	e.next = until
	e.mu.Unlock()
}
