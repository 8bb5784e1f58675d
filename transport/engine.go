package transport

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// Engine moves bytes between spans and counts them. All methods may be
// called from any goroutine.
type Engine struct {
	slots *SlotPool
}

// New makes an engine. Close gives its pinned memory back.
func New(o Options) (*Engine, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Engine{slots: &SlotPool{}}, nil
}

// Copy moves every byte of src to dst, whose lengths must be equal, and says
// which way they took.
func (e *Engine) Copy(ctx context.Context, dst, src Span) (Path, error) {
	return "", devices.ErrUnsupported
}

// View shows device memory to the host without a copy, read only.
func (e *Engine) View(ctx context.Context, s devices.Span) (devices.View, error) {
	return devices.View{}, devices.ErrUnsupported
}

// Fill sets every byte of dst.
func (e *Engine) Fill(ctx context.Context, dst Span, value byte) error {
	return devices.ErrUnsupported
}

// Slots returns the engine's pinned buffers.
func (e *Engine) Slots() *SlotPool { return e.slots }

// Stats returns the counters.
func (e *Engine) Stats() Stats { return Stats{} }

// Close ends the engine.
func (e *Engine) Close() error { return nil }
