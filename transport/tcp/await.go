package tcp

import (
	"context"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/turn"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// MaxAwaited is the largest put or get, in bytes, that is worth waiting for by
// Await: its whole answer fits the read-ahead buffer.
const MaxAwaited devices.Size = 4 << 10

// Await waits until it has received from done, which follows complete, or until
// the context ends, and returns nil or the context's error. While answers come
// fast it reads them itself, so that it need not be woken. A context that ends
// meanwhile is noticed within a few milliseconds.
func (c *Channel) Await(ctx context.Context, done <-chan struct{}, complete *atomic.Bool) error {
	if _, ok := turn.Receive(ctx, c.turn, done, nil, func() bool { return c.readAnswers(complete) }); ok {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Recall makes the channel serve the peer at once. It is called by goroutines
// that wait for something else from the peer, and not in Await.
func (c *Channel) Recall() { c.turn.Recall() }

// readAnswers reads frames until complete. It returns false if it finds one that
// is not for a waiter, or none that is whole when the turn is recalled: that
// frame is left to the channel's reader, and so is every error.
func (c *Channel) readAnswers(complete *atomic.Bool) bool {
	for !complete.Load() {
		h, ok := c.in.answer(c.conn.Chunk)
		if !ok {
			return false
		}
		if err := c.dispatch(c.in, &h); err != nil {
			c.fail(err)
			return false
		}
	}
	return true
}

// answer reads an answer with all of its bytes into the read-ahead buffer, and
// consumes its header. Other frames, and larger ones, remain there.
func (r *reader) answer(chunk uint32) (h wire.DataHeader, ok bool) {
	r.from.Eager = true
	defer func() { r.from.Eager = false }()
	need := wire.DataHeaderSize
	for {
		if have := r.w - r.r; have >= need {
			if err := h.Decode(r.buf[r.r:r.w], chunk); err != nil || (h.Kind != wire.KindAck && h.Kind != wire.KindData) {
				return h, false
			}
			if need = wire.DataHeaderSize + int(h.Length); need > int(MaxAwaited)+wire.DataHeaderSize {
				return h, false
			}
			if have >= need {
				r.r += wire.DataHeaderSize
				return h, true
			}
		}
		if r.fill() != nil {
			return h, false
		}
	}
}
