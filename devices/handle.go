package devices

import (
	"context"
	"fmt"
	"os"
)

// HandleKind is a method of identifying memory to another process.
type HandleKind string

// The kinds of handles.
const (
	// HandleIPC is the vendor's opaque bytes for a plain allocation, as returned by
	// cuIpcGetMemHandle. They are valid only on the same machine, and never in the process
	// that created them.
	HandleIPC HandleKind = "ipc"
	// HandleVMM is a descriptor of physical device memory, as returned by
	// cuMemExportToShareableHandle. The memory lives as long as any process holds it.
	HandleVMM HandleKind = "vmm-fd"
	// HandleMemfd is a descriptor of shared host memory: a memfd, or a file of a tmpfs.
	HandleMemfd HandleKind = "memfd"
)

// Handle identifies memory of one allocation to another process, or is such a handle
// received from another process.
type Handle struct {
	Kind HandleKind
	// Device is the UUID of the card as in Info.UUID; empty for host memory, or if it is
	// not known.
	Device string
	// Offset and Size are the identified part of the allocation, in bytes.
	Offset Offset
	Size   Size
	// Allocation is the size of the whole allocation, 0 if it is not known.
	Allocation Size
	// Bytes are the vendor's opaque bytes, for HandleIPC.
	Bytes []byte
	// File is the descriptor, for all other kinds. The holder of the Handle owns it and
	// must close it.
	File *os.File
}

// Close closes the descriptor, if there is one.
func (h *Handle) Close() error {
	if h.File == nil {
		return nil
	}
	f := h.File
	h.File = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("close a %s handle: %w", h.Kind, err)
	}
	return nil
}

// Exporter is the ability to export memory to another process. Only memory allocated for
// export can be exported: vendors require the choice at allocation.
type Exporter interface {
	// ExportKinds lists the kinds that the device supports, the best first. It is empty if
	// this particular device supports none.
	ExportKinds() []HandleKind
	// AllocShared allocates n bytes that can be exported as kind. It is like Alloc in all
	// other respects; the Memory's Size may be rounded up.
	AllocShared(ctx context.Context, n Size, kind HandleKind) (*Memory, error)
	// Export returns a handle for all of a memory from AllocShared. The caller owns the
	// handle's descriptor. ErrUnsupported for any other memory.
	Export(ctx context.Context, m *Memory) (Handle, error)
}

// Importer is the ability to use memory that another process has exported.
type Importer interface {
	// Import opens the memory that h identifies: the Memory is the part of h.Size bytes
	// starting at h.Offset. The device never frees or changes memory owned by another
	// process: the last Release only ends the mapping. The caller keeps the handle.
	//
	// Errors: ErrHandle for an invalid handle, one of another device, machine or dead
	// process, or one whose part is outside of the allocation; ErrUnsupported for a kind
	// that the device can't open.
	Import(ctx context.Context, h Handle) (*Memory, error)
}

// ExportKinds lists the kinds of handles that a device supports, the best first; none if it
// can't export.
func ExportKinds(d Device) []HandleKind {
	if x, ok := d.(Exporter); ok {
		return x.ExportKinds()
	}
	return nil
}

// AllocShared allocates memory that can be exported as kind; ErrUnsupported if the device
// can't.
func AllocShared(ctx context.Context, d Device, n Size, kind HandleKind) (*Memory, error) {
	x, ok := d.(Exporter)
	if !ok {
		return nil, fmt.Errorf("export memory of %s: %w", d.Info().Name, ErrUnsupported)
	}
	return x.AllocShared(ctx, n, kind)
}

// Export returns a handle for a memory from AllocShared, for another process.
func Export(ctx context.Context, m *Memory) (Handle, error) {
	x, ok := m.Device().(Exporter)
	if !ok {
		return Handle{}, fmt.Errorf("export memory of %s: %w", m.name, ErrUnsupported)
	}
	return x.Export(ctx, m)
}

// Import opens memory of another process on the device; ErrUnsupported if the device can't.
func Import(ctx context.Context, d Device, h Handle) (*Memory, error) {
	i, ok := d.(Importer)
	if !ok {
		return nil, fmt.Errorf("open a %s handle on %s: %w", h.Kind, d.Info().Name, ErrUnsupported)
	}
	return i.Import(ctx, h)
}
