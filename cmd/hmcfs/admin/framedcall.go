package admin

import (
	"context"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// numberedVerb is a verb of frames.
type numberedVerb struct {
	name adminapi.Verb
	do   verb
	// lasting is true if calls of the verb continue in the background, and waits if they may
	// wait for other clients before they have begun.
	lasting, waits bool
	// handsOver is true if calls of the verb publish or receive.
	handsOver bool
}

// numberedVerbs returns all verbs, by their number in frames less one.
func numberedVerbs(all map[adminapi.Verb]verb) []numberedVerb {
	names := frames.Verbs()
	out := make([]numberedVerb, len(names))
	for i, name := range names {
		lasting := name == adminapi.VerbPublish || name == adminapi.VerbSubscribe
		waits := name == adminapi.VerbSubscribe || name == adminapi.VerbWait || name == adminapi.VerbClaim
		out[i] = numberedVerb{
			name: name, do: all[name], lasting: lasting, waits: waits, handsOver: lasting || name == adminapi.VerbSettle,
		}
	}
	return out
}

// framedCall is one call in progress.
type framedCall struct {
	framed *framed
	verb   numberedVerb
	q      adminapi.Call
	// taken is the memory reserved from the budget of the user.
	taken  int64
	out    frameSink
	answer answer
}

// newCall returns a call with a number.
func (f *framed) newCall(id uint64) *framedCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	var c *framedCall
	if n := len(f.idle); n > 0 {
		c = f.idle[n-1]
		f.idle = f.idle[:n-1]
		f.spare -= c.size()
	} else {
		c = &framedCall{framed: f, out: frameSink{framed: f}}
	}
	c.out.id, c.answer, c.taken = id, answer{to: &c.out, room: c.answer.room}, 0
	return c
}

// callLife is the context of a call, and the one that it is derived from.
type callLife struct {
	ctx, of context.Context //nolint:containedctx // it belongs to one call at a time
	cancel  context.CancelFunc
}

// finish removes a call from those in progress: its number may be used again. again is true if
// nothing uses its context any more, which then is a later call's, unless it was cancelled.
func (f *framed) finish(id uint64, again bool) {
	f.mu.Lock()
	life := f.calls[id]
	delete(f.calls, id)
	if again = again && life.ctx.Err() == nil && len(f.lives) < maxIdle; again {
		f.lives = append(f.lives, life)
	}
	f.mu.Unlock()
	if !again {
		life.cancel()
	}
}

// leave ends a call whose last frame was sent. Its memory is available to later ones if again is
// true.
func (f *framed) leave(c *framedCall, again bool) {
	size := c.size()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active--
	if again && f.spare+size <= mostIdle && cap(c.out.buf) <= 2*lineBuffer && len(f.idle) < maxIdle {
		f.idle = append(f.idle, c)
		f.spare += size
	}
}

// size returns the number of keys, lists and blobs that the memory of a call has room for.
func (c *framedCall) size() int {
	size := cap(c.q.Keys) + cap(c.q.Lists) + cap(c.answer.room)
	for i := range c.q.Lists[:cap(c.q.Lists)] {
		size += cap(c.q.Lists[:cap(c.q.Lists)][i].Blobs)
	}
	return size
}

// run executes a call and answers it. The rest of an answer that splits is left to another
// goroutine.
func (c *framedCall) run(ctx context.Context) {
	begun := time.Now()
	c.step(func() (over bool) {
		c.answer.splits = c.verb.lasting && !c.verb.waits
		err := c.verb.do(ctx, c.framed.one.client, &c.q, &c.answer)
		if c.answer.splits && c.answer.rest != nil {
			go c.step(func() bool {
				c.answer.rest()
				c.end(begun, nil)
				return true
			})
			return false
		}
		c.end(begun, err)
		return true
	})
}

// step runs a part of a call, which reports whether it was the last.
func (c *framedCall) step(part func() (over bool)) {
	f, over, done := c.framed, true, false
	defer func() {
		if !over {
			return
		}
		f.one.user.memory.Release(c.taken)
		f.leave(c, done && !c.verb.lasting && !c.q.Async)
		f.one.calls.Done()
	}()
	defer f.contain()
	over = part()
	done = true
}

// end sends the last frame of a call.
func (c *framedCall) end(begun time.Time, err error) {
	f := c.framed
	f.server.opts.Calls.record(f.conn.peer, c.verb.name, &c.q, begun, c.answer.keysFailed, err)
	f.finish(c.out.id, !c.verb.waits && !c.q.Async && c.q.Timeout == 0) // before the client has the last frame
	// A failure to send ends the session.
	if err != nil {
		_ = c.out.refuse(err)
	} else {
		_ = c.out.last()
	}
}
