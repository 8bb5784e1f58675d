package fs

import (
	"context"
	"time"
)

// requestContext is the context of a request that the kernel can interrupt:
// it ends when go-fuse closes the request's channel. It is the channel
// itself, so making one takes no memory and no goroutine. It must not be used
// after its request has been answered, since go-fuse uses the channel again.
type requestContext <-chan struct{}

var _ context.Context = requestContext(nil)

// Deadline says that there is none.
func (c requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the kernel interrupts the request.
func (c requestContext) Done() <-chan struct{} { return c }

// Err is context.Canceled once the request is interrupted.
func (c requestContext) Err() error {
	select {
	case <-c:
		return context.Canceled
	default:
		return nil
	}
}

// Value holds nothing.
func (c requestContext) Value(any) any { return nil }
