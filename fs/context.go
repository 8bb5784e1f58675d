package fs

import (
	"context"
	"time"
)

// requestContext is the context of a request that the kernel can interrupt: it ends when
// go-fuse closes the request's channel. It is the channel itself, so creating one needs no
// allocation and no goroutine. It must not be used after its request has been answered,
// since go-fuse reuses the channel.
type requestContext <-chan struct{}

var _ context.Context = requestContext(nil)

// Deadline reports that there is no deadline.
func (c requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done returns the channel that is closed when the kernel interrupts the request.
func (c requestContext) Done() <-chan struct{} { return c }

// Err returns context.Canceled once the request is interrupted.
func (c requestContext) Err() error {
	select {
	case <-c:
		return context.Canceled
	default:
		return nil
	}
}

// Value always returns nil.
func (c requestContext) Value(any) any { return nil }
