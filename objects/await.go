package objects

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// arrivals are those who wait for keys to be there.
type arrivals struct {
	mu sync.Mutex
	// waiting has, by key, what is closed when it comes.
	// +checklocks:mu
	waiting map[string]*arrival
}

type arrival struct {
	came chan struct{}
	// waiters counts who looks at it; the last one takes it away.
	waiters int
}

// wait begins to wait for a key: what comes from now on closes the channel.
// leave is called once.
func (a *arrivals) wait(key string) (came <-chan struct{}, leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[key]
	if w == nil {
		if a.waiting == nil {
			a.waiting = map[string]*arrival{}
		}
		w = &arrival{came: make(chan struct{})}
		a.waiting[key] = w
	}
	w.waiters++
	return w.came, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if w.waiters--; w.waiters == 0 && a.waiting[key] == w {
			delete(a.waiting, key)
		}
	}
}

// came wakes who waits for a key.
func (a *arrivals) came(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.waiting[key]; w != nil {
		close(w.came)
		delete(a.waiting, key)
	}
}

// await returns when there says yes for a key, which is asked at first and
// after each arrival.
func (a *arrivals) await(ctx context.Context, key string, there func() (bool, error)) error {
	for {
		came, leave := a.wait(key)
		yes, err := there()
		if yes || err != nil {
			leave()
			return err
		}
		select {
		case <-came:
			leave()
		case <-ctx.Done():
			leave()
			return fmt.Errorf("wait for key %q: %w", key, ctx.Err())
		}
	}
}

// AwaitKey returns when a key names an object whose bytes are there, or with
// the context's error.
func (s *Store) AwaitKey(ctx context.Context, key string) error {
	return s.keyed.arrivals.await(ctx, key, func() (bool, error) { return s.KeyThere(ctx, key) })
}

// keyCame tells who waits and who listens that a key names an object now.
func (s *Store) keyCame(in metadata.Inode) {
	s.keyed.arrivals.came(in.Key)
	s.emit(EventCreated, in.Key, in)
}

// inodeCame is keyCame for an inode whose bytes are there again, if it has a
// key.
func (s *Store) inodeCame(ctx context.Context, ino Ino) {
	if in, err := s.meta.Get(context.WithoutCancel(ctx), ino); err == nil && in.Key != "" {
		s.keyCame(in)
	}
}
