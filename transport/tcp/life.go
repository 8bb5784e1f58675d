package tcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/control"
)

// Done is closed when the channel has ended and nothing of it runs.
func (c *Channel) Done() <-chan struct{} { return c.done }

// Err returns the cause of the channel's end; nil while it is alive.
func (c *Channel) Err() error { return control.Disconnected(c.conn.Peer, context.Cause(c.life)) }

// Close ends the channel and waits until nothing of it runs. Transfers in
// progress complete with an error.
func (c *Channel) Close() {
	c.fail(errors.New("closed on this side"))
	<-c.done
}

// fail starts the end: the first cause is kept.
func (c *Channel) fail(cause error) {
	c.mu.Lock()
	c.kill(cause)
	c.watch.Stop()
	c.mu.Unlock()
	// Its error is that of a connection that has ended already.
	_ = c.conn.Close()
}

// bury completes everything that is left when nothing runs any more.
func (c *Channel) bury() {
	c.running.Wait()
	c.fail(errors.New("ended"))
	err := c.Err()
	c.mu.Lock()
	var left []job
	for _, p := range c.places {
		if p.live {
			left = append(left, p.frag.job)
		}
	}
	clear(c.places)
	c.free = c.free[:0]
	frames, jobs := c.out.Drain(), append(c.jobs.Drain(), c.stager.jobs.Drain()...)
	gets := c.stager.gets.Drain()
	c.mu.Unlock()
	for _, f := range frames {
		f.release(c)
	}
	for _, g := range gets {
		g.use.Release()
	}
	c.lander.clear()
	for _, j := range left {
		j.ended(err)
	}
	for _, j := range jobs {
		j.abort(err)
	}
	close(c.done)
}

// look ends a channel on which nothing moves while something is pending.
func (c *Channel) look() {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return
	}
	moved := c.moved.Load()
	waits := len(c.free) < len(c.places) || c.writing || c.inside.Load()
	if waits && moved == c.seen {
		c.idle++
	} else {
		c.idle = 0
	}
	c.seen = moved
	stalled := c.idle >= looks
	if !stalled {
		c.watch.Reset(c.opts.Timeout / looks)
	}
	c.mu.Unlock()
	if stalled {
		c.fail(fmt.Errorf("no progress for %v: %w", c.opts.Timeout, ErrStalled))
	}
}
