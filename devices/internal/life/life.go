package life

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
)

// Life admits operations until the device is closed. The zero value is that of an open
// device. It is safe for concurrent use and must not be copied.
//
// It is itself the lock that an operation holds for reading. A function that frees a part
// of the device, and has nothing to do after Close, only acquires it with RLock.
type Life struct {
	sync.RWMutex
	closed atomic.Bool
}

// Enter starts an operation; leave ends it. Between the two the device is not closed.
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

// Begin checks the span of an operation whose other side has n bytes, and enters.
//
// Errors, besides those of Enter and of Span.Check:
//   - devices.ErrRange if the length of the span is not n.
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
//   - devices.ErrRange if the spans differ in length.
func (l *Life) BeginCopy(ctx context.Context, dev devices.Device, dst, src devices.Span) (leave func(), err error) {
	if err := src.Check(dev); err != nil {
		return nil, err
	}
	if dst.Len != src.Len {
		return nil, fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, dev.Info().Name, devices.ErrRange)
	}
	return l.Begin(ctx, dev, dst, int(dst.Len))
}

// Closed reports whether Close has started to free resources.
func (l *Life) Closed() bool { return l.closed.Load() }

// Close waits for the operations in flight, admits no others and calls give, which frees
// the device's resources, with no operation in progress. Only the first call does so;
// others return nil once it is done.
func (l *Life) Close(give func() error) error {
	l.Lock()
	defer l.Unlock()
	if l.closed.Swap(true) {
		return nil
	}
	return give()
}
