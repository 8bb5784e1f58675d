package cudalike

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// shareUnit is the allocation unit, in bytes, of memory that is exported. HIP gives no
// handle for a larger allocation that is not a whole number of pages, and a runtime that
// shares whole blocks, as CUDA does, would with smaller units share other allocations too.
const shareUnit = 2 * devices.MiB

// sharing implements card.Sharing with the runtime's calls.
type sharing struct{ d *device }

var _ card.Sharing = sharing{}

// Unit returns the allocation unit for HandleIPC, the only supported kind.
func (s sharing) Unit(kind devices.HandleKind) devices.Size {
	if kind != devices.HandleIPC {
		return 0
	}
	return shareUnit
}

// TakeShared allocates memory that can be exported.
func (s sharing) TakeShared(n devices.Size, kind devices.HandleKind) (*card.Block, error) {
	b, err := s.d.newBlock(n)
	if err != nil {
		return nil, err
	}
	b.Kind = kind
	return b, nil
}

// Clear sets the bytes from off on to 0.
func (s sharing) Clear(_ context.Context, b *card.Block, off devices.Size) error {
	return s.d.withStream(func(on stream) error {
		return s.d.work(on, func() error { return s.d.t.fill(placeIn(b, off), 0, uint64(b.Size-off), on) })
	})
}

// Name fills in the handle of the memory, which is valid until the memory is freed.
func (s sharing) Name(b *card.Block, h *devices.Handle) (err error) {
	h.Allocation = b.Size
	ipc := s.d.t.ipc
	h.Bytes, err = s.d.Exported(b, func() (handle []byte, unname func() error, err error) {
		if handle, err = ipc.export(b.Addr, uint64(b.Size)); err == nil && ipc.unexport != nil {
			unname = func() error { return ipc.unexport(handle) }
		}
		return handle, unname, err
	})
	return err
}

// Check rejects a handle that is recognizably invalid without a call to the runtime.
func (s sharing) Check(h devices.Handle) error {
	switch ipc := s.d.t.ipc; {
	case len(h.Bytes) != ipc.size:
		return fmt.Errorf("the handle has %d bytes instead of %d: %w", len(h.Bytes), ipc.size, devices.ErrHandle)
	case h.Allocation == 0 && ipc.extent == nil:
		return fmt.Errorf(`the runtime does not report the size of the allocation, and the handle lacks it: "allocation" is missing: %w`,
			devices.ErrHandle)
	}
	return nil
}

// Open opens the part that a handle identifies; its owner is on this machine and card.
func (s sharing) Open(h devices.Handle) (*card.Block, error) {
	return s.d.OpenOnce(h, func(bool) (card.Foreign, error) { return s.open(bytes.Clone(h.Bytes)) })
}

// open maps the allocation that a handle identifies.
func (s sharing) open(handle []byte) (card.Foreign, error) {
	ipc := s.d.t.ipc
	at, err := ipc.open(handle)
	switch {
	case err == nil:
	case s.d.t.codes.sticky(err) || s.d.t.codes.noMemory(err):
		return card.Foreign{}, err
	default:
		return card.Foreign{}, fmt.Errorf("%w: %w", err, devices.ErrHandle)
	}
	f := card.Foreign{Addr: at, Close: func() error {
		return s.d.On(func() error { return ipc.close(handle, at) })
	}}
	if ipc.extent == nil {
		return f, nil
	}
	err = s.d.On(func() error {
		n, xerr := ipc.extent(at)
		f.Size = devices.Size(n)
		if xerr == nil && n == 0 {
			return fmt.Errorf("the handle covers no bytes: %w", devices.ErrHandle)
		}
		return xerr
	})
	if err != nil {
		return card.Foreign{}, errors.Join(err, f.Close())
	}
	return f, nil
}
