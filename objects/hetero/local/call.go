package local

import (
	"context"
	"sync"
	"sync/atomic"
)

// call is the context of one call: it ends with the caller's, and with the client. Most calls only ask
// whether it has ended, so there is a context that others can wait for only once one of them does.
type call struct {
	context.Context //nolint:containedctx // it is the caller's, which this one extends

	client *Client
	// derived is the context to wait for, once there is one, and cut ends it.
	derived atomic.Pointer[context.Context]
	// left is set at the end of the call.
	left atomic.Bool

	mu sync.Mutex
	// +checklocks:mu
	cut func()
}

// leave ends the call. It must be called once.
func (c *call) leave() {
	c.left.Store(true)
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut != nil {
		cut()
	}
	c.client.calls.Done()
}

// reusable makes a call that has ended one that can begin, unless others have waited for its end: they may do so
// still.
func (c *call) reusable() bool {
	if c.derived.Load() != nil {
		return false
	}
	c.Context = nil
	c.left.Store(false)
	return true
}

// Done implements context.Context.
func (c *call) Done() <-chan struct{} { return c.wait().Done() }

// Err implements context.Context.
func (c *call) Err() error {
	if d := c.derived.Load(); d != nil {
		return (*d).Err()
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.left.Load() || c.client.life.Err() != nil {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context. The derived context is found by it, so that others derive theirs
// without a goroutine.
func (c *call) Value(key any) any {
	if d := c.derived.Load(); d != nil {
		return (*d).Value(key)
	}
	return c.Context.Value(key)
}

// wait returns the context to wait for.
func (c *call) wait() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.derived.Load(); d != nil {
		return *d
	}
	ctx, cancel := context.WithCancel(c.Context)
	stop := context.AfterFunc(c.client.life, cancel)
	c.cut = func() {
		stop()
		cancel()
	}
	if c.left.Load() || c.client.life.Err() != nil {
		cancel() // AfterFunc takes a while
	}
	c.derived.Store(&ctx)
	return ctx
}
