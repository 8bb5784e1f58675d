package devices

import (
	"context"
	"fmt"
	"os"
)

// HandleKind is a way to name memory for another process.
type HandleKind string

// The kinds of handles.
const (
	// HandleIPC is the vendor's opaque bytes for a plain allocation, as
	// cuIpcGetMemHandle gives them. They mean something only on the same
	// machine, and never in the process that made them.
	HandleIPC HandleKind = "ipc"
	// HandleVMM is a descriptor of physical device memory, as
	// cuMemExportToShareableHandle gives it. The memory lives as long as
	// anybody holds it.
	HandleVMM HandleKind = "vmm-fd"
	// HandleMemfd is a descriptor of shared host memory: a memfd, or a file
	// of a tmpfs.
	HandleMemfd HandleKind = "memfd"
)

// Handle names memory of one allocation for another process, or is such a
// name that another process has given.
type Handle struct {
	Kind HandleKind
	// Device is the UUID of the card as Info.UUID has it; empty for host
	// memory, or where it is not known.
	Device string
	// Offset and Size are the part of the allocation that is meant, in bytes.
	Offset Offset
	Size   Size
	// Allocation is the size of the whole allocation, 0 where it is not known.
	Allocation Size
	// Bytes are the vendor's, for HandleIPC.
	Bytes []byte
	// File is the descriptor of all other kinds. Whoever holds the Handle owns
	// it, and closes it.
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

// Exporter is the ability to name memory for another process. Only memory that
// was allocated for it can be named: vendors want to know at allocation.
type Exporter interface {
	// ExportKinds lists what the device can do, the best first. It is empty
	// where this very device can't.
	ExportKinds() []HandleKind
	// AllocShared takes n bytes that can be exported as kind. It differs from
	// Alloc in nothing else; the Memory's Size may be rounded up.
	AllocShared(ctx context.Context, n Size, kind HandleKind) (*Memory, error)
	// Export names a memory of AllocShared, whole. The caller owns the
	// handle's descriptor. ErrUnsupported for any other memory.
	Export(ctx context.Context, m *Memory) (Handle, error)
}

// Importer is the ability to use memory that another process has exported.
type Importer interface {
	// Import opens the memory that h names: the Memory is the part from
	// h.Offset on, h.Size bytes long. The device never frees or changes what
	// another process owns: the last Release only ends the mapping. The
	// handle stays the caller's.
	//
	// Errors: ErrHandle for a handle that is not one, is of another device,
	// machine or dead process, or whose part lies outside the allocation;
	// ErrUnsupported for a kind that the device can't open.
	Import(ctx context.Context, h Handle) (*Memory, error)
}

// ExportKinds lists the kinds of handles that a device can give, the best
// first; none where it can't export.
func ExportKinds(d Device) []HandleKind {
	if x, ok := d.(Exporter); ok {
		return x.ExportKinds()
	}
	return nil
}

// AllocShared takes memory that can be exported as kind; ErrUnsupported where
// the device can't.
func AllocShared(ctx context.Context, d Device, n Size, kind HandleKind) (*Memory, error) {
	x, ok := d.(Exporter)
	if !ok {
		return nil, fmt.Errorf("export memory of %s: %w", d.Info().Name, ErrUnsupported)
	}
	return x.AllocShared(ctx, n, kind)
}

// Export names a memory of AllocShared for another process.
func Export(ctx context.Context, m *Memory) (Handle, error) {
	x, ok := m.Device().(Exporter)
	if !ok {
		return Handle{}, fmt.Errorf("export memory of %s: %w", m.name, ErrUnsupported)
	}
	return x.Export(ctx, m)
}

// Import opens memory of another process on the device; ErrUnsupported where
// the device can't.
func Import(ctx context.Context, d Device, h Handle) (*Memory, error) {
	i, ok := d.(Importer)
	if !ok {
		return nil, fmt.Errorf("open a %s handle on %s: %w", h.Kind, d.Info().Name, ErrUnsupported)
	}
	return i.Import(ctx, h)
}
