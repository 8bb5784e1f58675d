package transport

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// SlotPool hands out pinned host buffers and takes them back for reuse.
type SlotPool struct{}

// Slot is one pinned host buffer, page aligned, of unspecified content.
type Slot struct{}

// Get waits until n bytes are to be had.
func (p *SlotPool) Get(ctx context.Context, n devices.Size) (*Slot, error) { return nil, devices.ErrUnsupported }

// TryGet is Get without waiting.
func (p *SlotPool) TryGet(n devices.Size) (*Slot, bool) { return nil, false }

// Bytes returns the buffer, n bytes long.
func (s *Slot) Bytes() []byte { return nil }

// Release gives the slot back, once.
func (s *Slot) Release() {}
