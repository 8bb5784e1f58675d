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
	// expireBatch is the number of files that are asked for at a time.
	expireBatch = 256
	// expireLook bounds the sleep of the sweeper while a file has a time
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
	// next is the time at which it wakes by itself; zero is never.
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

// startExpiry removes what expired while nobody looked, and whatever expires
// from then on.
func (s *Store) startExpiry(ctx context.Context) {
	x := &sweeper{keyed: s.keyed, bad: map[Ino]retry{}}
	pause := x.pass(ctx)
	s.work.Go(func() { x.run(ctx, pause) })
}

// sweeper removes expired files.
type sweeper struct {
	keyed *keyed
	// bad are files that could not be removed.
	bad map[Ino]retry
	// failures counts the looks, one after the other, that failed.
	failures int
}

// retry is the time at which a file is tried again, and how long that was put off.
type retry struct {
	at    time.Time
	pause time.Duration
}

// run sleeps until a file ends, or somebody says that one ends earlier. A
// negative pause has no end.
func (x *sweeper) run(ctx context.Context, pause time.Duration) {
	for {
		var due <-chan time.Time
		stop := func() bool { return true }
		if pause >= 0 {
			timer := time.NewTimer(min(pause, expireLook))
			due, stop = timer.C, timer.Stop
		}
		select {
		case <-due:
		case <-x.keyed.expiry.wake:
		case <-ctx.Done():
			stop()
			return
		}
		stop()
		pause = x.pass(ctx)
	}
}

// pass removes what is over, and tells after what pause to look again, or a
// negative one for never. A file that can't be removed holds up no other.
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

// failed is after what pause to look again when what is over can't be told.
func (x *sweeper) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return -1
	}
	x.keyed.log.Warn("expired files can't be told", zap.Error(err))
	x.failures++
	return min(expireRetry<<min(x.failures-1, 6), expireRetryMax)
}

// try removes one file, unless it is not its turn.
func (x *sweeper) try(ctx context.Context, ino Ino) {
	before, failed := x.bad[ino]
	if failed && time.Now().Before(before.at) {
		return
	}
	err := x.keyed.expireOne(ctx, ino)
	if err == nil {
		delete(x.bad, ino)
		return
	}
	if !failed {
		x.keyed.log.Warn("expired file could not be removed", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	pause := min(max(2*before.pause, expireRetry), expireRetryMax)
	x.bad[ino] = retry{at: time.Now().Add(pause), pause: pause}
}

// forget keeps of the bad files those that are among over.
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

// pause returns the time in which nothing is to be done.
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

// lostStays is the time that a key stays after it was lost with the session
// that set it: what reads it meanwhile is told why it can't be read.
const lostStays = time.Minute

// expireLost removes, after lostStays, an object that a session has set and
// that is lost with it.
func (ks *keyed) expireLost(ctx context.Context, ino Ino) {
	at := metadata.TimespecOf(ks.meta.Now().Time().Add(lostStays))
	err := ks.expireAt(ctx, ino, at, func(now metadata.Inode) error {
		if now.Expires != (metadata.Timespec{}) && at.After(now.Expires) {
			return errNotOver // it goes before
		}
		return nil
	})
	if err != nil && !errors.Is(err, metadata.ErrNotExist) && !errors.Is(err, errNotOver) {
		ks.log.Warn("a lost key stays until it is removed", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
}

// errNotOver reports that a file that was to be removed is kept: it has been
// given more time, or is not lost any more.
var errNotOver = errors.New("its time is not over")

// expireOne removes a file whose time is over, with all its names. A process
// that has it open keeps its bytes.
func (ks *keyed) expireOne(ctx context.Context, ino Ino) error {
	return ks.removeIf(ctx, ino, EventExpired, ks.index.isOver)
}

// RemoveLost removes a lost object with all its names. One that is not lost any
// more, or has gone, is a success.
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

// removeIf removes a file with all its names as long as is reports true of it.
func (ks *keyed) removeIf(ctx context.Context, ino Ino, kind EventKind, is func(metadata.Inode) bool) error {
	ctx = context.WithoutCancel(ctx)
	for races := 0; ; {
		in, err := ks.meta.Get(ctx, ino)
		if errors.Is(err, metadata.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at a file that is to go: %w", err)
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
			races++ // it was renamed, or has gone
		case err != nil:
			return err
		}
		if _, err = ks.meta.Get(ctx, ino); errors.Is(err, metadata.ErrNotExist) {
			return nil
		}
	}
}
