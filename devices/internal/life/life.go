package life

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
)

// Life lets operations in until the device is closed. The zero value is that of
// an open device. It may be used from any goroutine and must not be copied.
//
// It is itself the lock that an operation holds for reading. What gives a part
// of the device back, and has nothing to do once Close has, takes it with RLock
// alone.
type Life struct {
	sync.RWMutex
	closed atomic.Bool
}

// Enter begins an operation; leave ends it. Between the two the device is not
// closed.
//
// Errors:
//   - the context's, once that has ended;
//   - devices.ErrClosed once dev is closed.
//
// +checklocksignore: what it locks is the caller's to unlock, by leave.
func (l *Life) Enter(ctx context.Context, dev devices.Device) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.RLock()
	if l.closed.Load() {
		l.RUnlock()
		return nil, fmt.Errorf("%s: %w", dev.Info().Name, devices.ErrClosed)
	}
	return l.RUnlock, nil
}

// Begin checks the span of an operation with n bytes of the other side, and
// enters.
//
// Errors, besides those of Enter and of Span.Check:
//   - devices.ErrRange when the span is not of n bytes.
func (l *Life) Begin(ctx context.Context, dev devices.Device, s devices.Span, n int) (leave func(), err error) {
	if err := s.Check(dev); err != nil {
		return nil, err
	}
	if devices.Size(n) != s.Len {
		return nil, fmt.Errorf("%d bytes for %v on %s: %w", n, s.Range, dev.Info().Name, devices.ErrRange)
	}
	return l.Enter(ctx, dev)
}

// BeginCopy checks both spans of a copy inside a device, and enters.
//
// Errors, besides those of Enter and of Span.Check:
//   - devices.ErrRange when the spans are not of the same length.
func (l *Life) BeginCopy(ctx context.Context, dev devices.Device, dst, src devices.Span) (leave func(), err error) {
	if err := src.Check(dev); err != nil {
		return nil, err
	}
	if dst.Len != src.Len {
		return nil, fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, dev.Info().Name, devices.ErrRange)
	}
	return l.Begin(ctx, dev, dst, int(dst.Len))
}

// Closed says whether Close has begun to give things back.
func (l *Life) Closed() bool { return l.closed.Load() }

// Close waits for the operations in flight, lets no other in and calls give,
// which gives back what the device has, with nobody else inside. Only the
// first call does so; others return nil once it is over.
func (l *Life) Close(give func() error) error {
	l.Lock()
	defer l.Unlock()
	if l.closed.Swap(true) {
		return nil
	}
	return give()
}
