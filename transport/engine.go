package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/gate"
)

// Engine moves bytes between spans, picks the path, and counts. All methods may
// be called from any goroutine.
type Engine struct {
	opts  Options
	log   *zap.Logger
	slots *SlotPool
	// regions is nil if pages of files are not registered.
	regions  *regions
	counters counters
	gate     gate.Gate
	// made is the time from which the clock counts: a reading of a duration takes half as long as
	// that of a time.
	made time.Time
	// last is the clock at the end of the last copy that was measured, and base a recent time.
	last atomic.Int64
	base atomic.Pointer[time.Time]
	// close closes the engine once.
	close func() error
}

// New makes an engine. It allocates no memory before the first copy that needs
// it; Close releases it. Close the engine before its devices: its slots may be
// pinned for them.
func New(o Options) (*Engine, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		opts:  o,
		log:   o.Logger.Named("transport"),
		slots: NewSlotPool(o.MaxPinned),
		made:  time.Now(),
	}
	if !o.NoRegister {
		e.regions = newRegions(o.MaxRegistered)
	}
	e.close = sync.OnceValue(func() error {
		// Goroutines that wait for a slot fail first; then the copies that hold
		// slots end, and return them to a closed pool, which frees them.
		err := e.slots.Close()
		e.gate.Shut()
		e.gate.Drain()
		if e.regions != nil {
			err = errors.Join(err, e.regions.close())
		}
		return err
	})
	return e, nil
}

// Copy moves every byte of src to dst and reports their path; doc.go has the
// table. Spans of one device's memory, of one file, or of the caller's bytes may
// overlap: dst then holds what src held before.
//
// A copy of 0 bytes checks its spans, has no path and is not counted.
//
// Errors: devices.ErrRange for lengths that differ or a file that ends before its
// span does; devices.ErrClosed after Close; the context's, when it ends first;
// devices.ErrOutOfMemory, together with the kernel's ENOSPC, when a file can't
// grow; otherwise the device's. After an error dst, and nothing outside it, holds
// unspecified bytes.
func (e *Engine) Copy(ctx context.Context, dst, src Span) (Path, error) {
	if !e.gate.Enter() {
		return "", errEngineClosed()
	}
	defer e.gate.Leave()
	if dst.n != src.n {
		return "", fmt.Errorf("copy %d bytes to a span of %d: %w", uint64(src.n), uint64(dst.n), devices.ErrRange)
	}
	info, start := route(&dst, &src), e.clock()
	if info.Err = ready(ctx, &src, &dst); info.Err == nil {
		if dst.n == 0 {
			return "", nil
		}
		info.Path, info.Err = e.move(ctx, info.Path, &dst, &src)
	}
	if info.Err != nil {
		info.Err = fmt.Errorf("copy %v from %s to %s (%s): %w", dst.n, src.end(), dst.end(), info.Path, info.Err)
	}
	e.ended(&info, start)
	return info.Path, info.Err
}

// View maps device memory for the host without a copy. The view is read only; the
// span's memory must outlive it. It counts as a D2H copy of its length.
//
// Errors: devices.ErrUnsupported, which is not counted, when the device can't map
// this memory; otherwise the device's.
func (e *Engine) View(ctx context.Context, s devices.Span) (devices.View, error) {
	if !e.gate.Enter() {
		return devices.View{}, errEngineClosed()
	}
	defer e.gate.Leave()
	src := DeviceSpan(s)
	if err := src.check(); err != nil {
		return devices.View{}, fmt.Errorf("view of %v: %w", s.Len, err)
	}
	if s.Len == 0 {
		return devices.View{Release: func() {}}, nil
	}
	start := e.clock()
	view, err := devices.MapHost(ctx, s, devices.ReadOnly)
	if errors.Is(err, devices.ErrUnsupported) {
		return devices.View{}, err
	}
	if err != nil {
		err = fmt.Errorf("view of %v on %s: %w", s.Len, src.Device(), err)
	}
	e.ended(&CopyInfo{Path: PathD2H, Device: src.Device(), Bytes: s.Len, Err: err}, start)
	return view, err
}

// Slots returns the engine's pinned buffers, for callers that keep their own
// reads and writes in flight.
func (e *Engine) Slots() *SlotPool { return e.slots }

// Stats returns a snapshot of the counters.
func (e *Engine) Stats() Stats {
	used, total := e.slots.Pinned()
	s := Stats{Paths: e.counters.snapshot(), PinnedInUse: used, PinnedTotal: total, PinFailures: e.slots.notPinned.Load()}
	if e.regions != nil {
		s.Registered = e.regions.stats()
	}
	return s
}

// Close waits for the copies in progress and releases the pinned memory. Slots
// that are still held stay valid until their Release, and views until theirs.
func (e *Engine) Close() error { return e.close() }

// clock returns the time since the engine was made.
func (e *Engine) clock() time.Duration { return time.Since(e.made) }

// Recent returns the time at which a copy ended last, or the last one of a burst that was measured. After a copy of the caller
// that is about the time now, without a reading of the clock.
func (e *Engine) Recent() time.Time {
	last := e.made.Add(time.Duration(e.last.Load()))
	if base := e.base.Load(); base != nil && last.Sub(*base) < recentFor {
		return base.Add(last.Sub(*base))
	}
	now := time.Now() // it may have been set
	e.base.Store(&now)
	return now
}

// recentFor is the time after which Recent reads the clock again.
const recentFor = time.Second

// ended counts and reports what began at start.
func (e *Engine) ended(info *CopyInfo, start time.Duration) {
	now := e.clock()
	e.last.Store(int64(now))
	info.Duration = now - start
	e.counters.add(info)
	e.opts.Listener.copied(info)
	if info.Err == nil {
		return
	}
	if line := e.log.Check(zap.DebugLevel, "copy failed"); line != nil {
		line.Write(zap.String("path", string(info.Path)), zap.String("device", string(info.Device)),
			zap.Uint64("bytes", uint64(info.Bytes)), zap.Error(info.Err))
	}
}

func errEngineClosed() error {
	return fmt.Errorf("transport engine: %w", devices.ErrClosed)
}
