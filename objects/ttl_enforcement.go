package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// expireBatch is the number of expired files that are read at a time.
	expireBatch = 256
	// expireLook bounds the sleep of the sweeper while a file has a time to live, in case
	// the clock is changed.
	expireLook = time.Minute
	// expireRetry is the delay after which the removal of a file is retried, at first, and
	// expireRetryMax its maximum.
	expireRetry    = time.Second
	expireRetryMax = time.Minute
)

// expiry wakes the sweeper of expired files.
type expiry struct {
	mu sync.Mutex
	// next is the time at which the sweeper wakes on its own; zero is never.
	// +checklocks:mu
	next metadata.Timespec
	// wake has a buffer of one.
	wake chan struct{}
}

// note reports that a file expires at a time.
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

// sleeps records when the sweeper wakes. The sweeper passes zero before each check, so that
// every call of note during the check wakes it.
func (e *expiry) sleeps(until metadata.Timespec) {
	e.mu.Lock()
	e.next = until
	e.mu.Unlock()
}

// startExpiry removes the files that expired while the store was closed, and starts the
// sweeper.
func (s *Store) startExpiry(ctx context.Context) {
	x := &sweeper{keyed: s.keyed, bad: map[Ino]retry{}}
	pause := x.pass(ctx)
	s.work.Go(func() { x.run(ctx, pause) })
}

// sweeper removes expired files.
type sweeper struct {
	keyed *keyed
	// bad are the files whose removal has failed.
	bad map[Ino]retry
	// failures counts consecutive failures to list expired files.
	failures int
}

// retry is the time at which a removal is retried, and the delay before it.
type retry struct {
	at    time.Time
	pause time.Duration
}

// run sleeps until a file expires, or note reports an earlier time. A negative pause
// has no end.
func (x *sweeper) run(ctx context.Context, pause time.Duration) {
	for {
		var due <-chan time.Time
		if pause >= 0 {
			due = time.After(min(pause, expireLook))
		}
		select {
		case <-due:
		case <-x.keyed.expiry.wake:
		case <-ctx.Done():
			return
		}
		pause = x.pass(ctx)
	}
}

// pass removes the expired files, and returns the pause before the next pass; a
// negative one is for ever. A file that can't be removed does not delay others.
func (x *sweeper) pass(ctx context.Context) time.Duration {
	s := x.keyed
	for {
		s.expiry.sleeps(metadata.Timespec{})
		now := s.meta.Now()
		limit := expireBatch + len(x.bad)
		over, next, err := s.meta.Expired(ctx, now, limit)
		if err != nil {
			return x.failed(ctx, err)
		}
		x.failures = 0
		for _, ino := range over {
			if ctx.Err() != nil {
				return -1
			}
			x.try(ctx, ino)
		}
		if len(over) < limit {
			x.forget(over)
			s.expiry.sleeps(next)
			return x.pause(now, next)
		}
	}
}

// failed handles a failure to list the expired files, and returns the pause before the
// next pass.
func (x *sweeper) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return -1
	}
	x.keyed.log.Warn("could not list the expired files", zap.Error(err))
	x.failures++
	return min(expireRetry<<min(x.failures-1, 6), expireRetryMax)
}

// try removes one file with all its names, unless its retry is not due yet. A process that
// has it open keeps its bytes.
func (x *sweeper) try(ctx context.Context, ino Ino) {
	before, failed := x.bad[ino]
	if failed && time.Now().Before(before.at) {
		return
	}
	err := x.keyed.removeIf(ctx, ino, EventExpired, x.keyed.index.isOver)
	if err == nil {
		delete(x.bad, ino)
		return
	}
	if !failed {
		x.keyed.log.Warn("could not remove an expired file", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	pause := min(max(2*before.pause, expireRetry), expireRetryMax)
	x.bad[ino] = retry{at: time.Now().Add(pause), pause: pause}
}

// forget drops the bad files that are not in over.
func (x *sweeper) forget(over []Ino) {
	if len(x.bad) == 0 {
		return
	}
	kept := make(map[Ino]retry, len(x.bad))
	for _, ino := range over {
		if r, failed := x.bad[ino]; failed {
			kept[ino] = r
		}
	}
	x.bad = kept
}

// pause returns the time until the next expiry or retry; negative if there is none.
func (x *sweeper) pause(now, next metadata.Timespec) time.Duration {
	pause := time.Duration(-1)
	if next != (metadata.Timespec{}) {
		pause = max(0, next.Time().Sub(now.Time()))
	}
	for _, r := range x.bad {
		if wait := max(0, time.Until(r.at)); pause < 0 || wait < pause {
			pause = wait
		}
	}
	return pause
}

// lostStays is the time for which a key stays after it was lost with the session that
// had set it: readers meanwhile get an error that says why.
const lostStays = time.Minute

// expireLost makes an object that a session has set, and that is lost with it, expire
// after lostStays.
func (ks *keyed) expireLost(ctx context.Context, ino Ino) {
	at := metadata.TimespecOf(ks.meta.Now().Time().Add(lostStays))
	err := ks.expireAt(ctx, ino, at, func(now metadata.Inode) error {
		if now.Expires != (metadata.Timespec{}) && at.After(now.Expires) {
			return errNotOver // it expires earlier
		}
		return nil
	})
	if err != nil && !errors.Is(err, metadata.ErrNotExist) && !errors.Is(err, errNotOver) {
		ks.log.Warn("could not set the expiry of a lost key; it remains until it is removed", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
}

// errNotOver reports that a file that was to be removed is kept: it has got more time,
// or is no longer lost.
var errNotOver = errors.New("its time to live has not expired")

// RemoveLost removes a lost object with all its names. An object that is no longer
// lost, or no longer exists, is a success.
func (s *Store) RemoveLost(ctx context.Context, ino Ino) error {
	err := s.keyed.removeIf(ctx, ino, EventRemoved, func(now metadata.Inode) bool {
		_, away := s.tiers.named(now.Device)
		return away != nil || s.index.lostNow(now)
	})
	if err != nil {
		return fmt.Errorf("remove lost object %d: %w", ino, err)
	}
	return nil
}

// removeIf removes a file with all its names, as long as is returns true for it.
func (ks *keyed) removeIf(ctx context.Context, ino Ino, kind EventKind, is func(metadata.Inode) bool) error {
	ctx = context.WithoutCancel(ctx)
	for races := 0; ; {
		in, err := ks.meta.Get(ctx, ino)
		if errors.Is(err, metadata.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the record of a file to be removed: %w", err)
		}
		err = ks.names.unlinkSame(ctx, in, kind, func(now metadata.Inode) error {
			if !is(now) {
				return errNotOver
			}
			return nil
		})
		switch {
		case errors.Is(err, errNotOver), err == nil && in.Nlink <= 1:
			return nil
		case errors.Is(err, metadata.ErrNotExist) && races < 8:
			races++ // it was renamed or removed
		case err != nil:
			return err
		}
		if _, err = ks.meta.Get(ctx, ino); errors.Is(err, metadata.ErrNotExist) {
			return nil
		}
	}
}
