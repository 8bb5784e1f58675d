package objects

import (
	"context"
	"sync"
)

// Lane admits a number of users at a time. It is a queue rather than a lock: waiting for it
// ends with the context. An object's lane admits one change of its content at a time; readers
// never wait for it, and it is held during device copies.
type Lane chan struct{}

// NewLane makes a lane for n users at a time.
func NewLane(n int) Lane { return make(Lane, n) }

// Enter waits until there is room; Leave must follow. If there is room, the context does
// not matter.
//
// Errors: the context's.
func (l Lane) Enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave makes room for the next user.
func (l Lane) Leave() { <-l }

// soleLane is a Lane for one user at a time, which takes memory from the first use on. The zero value
// is ready for use.
type soleLane struct {
	once sync.Once
	lane Lane
}

// Enter is that of the Lane.
func (l *soleLane) Enter(ctx context.Context) error {
	l.once.Do(func() { l.lane = NewLane(1) })
	return l.lane.Enter(ctx)
}

// Leave is that of the Lane.
func (l *soleLane) Leave() { l.lane.Leave() }
