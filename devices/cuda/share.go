package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// shareUnit is the allocation unit, in bytes, of memory that is exported by IPC. The driver
// shares the whole block that contains an allocation, and puts several smaller allocations
// into one block.
const shareUnit = 2 * devices.MiB

// sharing implements card.Sharing with the driver's calls.
type sharing struct{ d *device }

var _ card.Sharing = sharing{}

// Unit returns the allocation unit of a kind, 0 if the card does not support it.
func (s sharing) Unit(kind devices.HandleKind) devices.Size {
	switch {
	case kind == devices.HandleIPC && s.d.entry.ipc:
		return shareUnit
	case kind == devices.HandleVMM && s.d.entry.export:
		return s.d.units.exported
	}
	return 0
}

// TakeShared allocates plain memory for IPC, and mapped memory for a descriptor.
func (s sharing) TakeShared(n devices.Size, kind devices.HandleKind) (b *card.Block, err error) {
	if kind == devices.HandleVMM {
		b, err = s.d.newPhysical(n, s.d.exportedProp())
	} else {
		b, err = s.d.newPlain(n)
	}
	if err != nil {
		return nil, err
	}
	b.Kind = kind
	return b, nil
}

// Clear sets the bytes from off on to 0.
func (s sharing) Clear(ctx context.Context, b *card.Block, off devices.Size) error {
	return s.d.withLane(ctx, func(l *lane) error {
		if err := s.d.api.fill(l.streams[0], b.Addr.At(off), 0, b.Size-off); err != nil {
			return err
		}
		return s.d.api.synchronize(l.streams[0])
	})
}

// Name fills in the fields of a handle.
func (s sharing) Name(b *card.Block, h *devices.Handle) error {
	if b.Kind == devices.HandleVMM {
		return s.exportVirtual(mappingOf(b), h)
	}
	return s.exportIPC(b, h)
}

// exportIPC fills in the fields of an IPC handle. It identifies the driver's whole block
// that contains the memory.
func (s sharing) exportIPC(b *card.Block, h *devices.Handle) error {
	base, size, err := s.d.api.addressRange(b.Addr)
	if err != nil {
		return err
	}
	h.Offset = devices.Offset(b.Addr - base)
	h.Allocation = size
	h.Bytes, err = s.d.Exported(b, func() ([]byte, func() error, error) {
		handle, gerr := ask[ipcHandle](s.d.api, "cuIpcGetMemHandle", s.d.api.IPCGet, uintptr(b.Addr))
		return handle.reserved[:], nil, gerr
	})
	return err
}

// exportVirtual fills in the fields of a descriptor handle.
func (s sharing) exportVirtual(m *mapping, h *devices.Handle) (err error) {
	h.File, err = s.d.descriptorOf(m.physical)
	h.Allocation = m.size
	return err
}

// Check rejects a handle that is not valid for its kind.
func (sharing) Check(h devices.Handle) error {
	switch {
	case h.Kind == devices.HandleIPC && len(h.Bytes) != ipcHandleSize:
		return fmt.Errorf("the handle has %d bytes instead of %d: %w", len(h.Bytes), ipcHandleSize, devices.ErrHandle)
	case h.Kind == devices.HandleVMM && h.File == nil:
		return fmt.Errorf("the handle has no descriptor: %w", devices.ErrHandle)
	}
	return nil
}

// refused turns a driver error about a handle into an ErrHandle, unless the card has failed
// or has no room.
func refused(what string, err error) error {
	if code := codeOf(err); code.Sticky() || code == 0 || code == codeOutOfMemory {
		return err
	}
	return fmt.Errorf("%s: %w: %w", what, devices.ErrHandle, err)
}

// Open opens the part of the allocation that a handle identifies.
func (s sharing) Open(h devices.Handle) (*card.Block, error) {
	if h.Kind == devices.HandleVMM {
		return s.importVirtual(h)
	}
	return s.d.OpenOnce(h, func(own bool) (card.Foreign, error) {
		if own {
			return card.Foreign{}, fmt.Errorf("this process has exported the handle, and CUDA opens it only in other processes: %w", devices.ErrHandle)
		}
		return s.openIPC(ipcHandle{[ipcHandleSize]byte(h.Bytes)})
	})
}

// openIPC opens a handle of another process.
func (s sharing) openIPC(handle ipcHandle) (card.Foreign, error) {
	p, err := s.d.api.ipcOpen(handle)
	if err != nil {
		return card.Foreign{}, refused("the driver does not accept the handle; the exporting process may have ended, "+
			"be this one, or be on another machine", err)
	}
	// The driver may attribute memory before p to the same block.
	base, size, err := s.d.api.addressRange(p)
	if err != nil {
		return card.Foreign{}, errors.Join(err, s.d.api.ipcClose(p))
	}
	return card.Foreign{
		Addr: p, Size: size - devices.Size(p-base),
		Close: func() error { return s.d.api.ipcClose(p) },
	}, nil
}

// importVirtual maps the memory of a descriptor. The driver can't be asked for its size,
// but refuses to map more than there is.
func (s sharing) importVirtual(h devices.Handle) (*card.Block, error) {
	end := devices.Size(h.Offset) + h.Size
	whole := card.RoundUp(max(end, h.Allocation), s.d.units.least)
	if end < h.Size || whole < end {
		return nil, card.Outside(devices.Range{Off: h.Offset, Len: h.Size}, h.Allocation)
	}
	b, err := s.d.importBlock(h.File, whole)
	if err != nil {
		return nil, err
	}
	b.Addr, b.Size = b.Addr.At(devices.Size(h.Offset)), h.Size
	return b, nil
}
