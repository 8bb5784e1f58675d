package objects

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/share"
)

// Caller is the process that asks for something which its user must be
// entitled to beyond the file's mode.
type Caller struct {
	UID, GID uint32
	PID      int
	// Groups are the supplementary groups.
	Groups []uint32
}

// BindRequest makes memory of another process the content of a file.
type BindRequest struct {
	// Memory is what was asked for.
	Memory share.Memory
	// Handles are the pieces' memory, in their order, opened. Bind takes the
	// descriptors over, also when it fails. Where it is nil, Bind opens what
	// Memory names.
	Handles []devices.Handle
}

// Bind makes memory that another process owns the content of the file ino,
// which must be a regular file without content. The file is that memory from
// then on: nothing is copied, and unlinking only unbinds.
func (s *Store) Bind(_ context.Context, ino Ino, _ Caller, _ BindRequest) error {
	return fmt.Errorf("bind object %d: %w", ino, ErrUnsupported)
}

// ExportOptions say how memory is exported.
type ExportOptions struct {
	// Kind is the kind of handle; empty is the device's best.
	Kind devices.HandleKind
	// Holder is a process: when it ends, so does the export. 0 is an export
	// that lasts until EndExport.
	Holder int
}

// Exported is memory of a file, named for another process.
type Exported struct {
	Memory share.Memory
	// Handle is the same with its descriptor, which the caller closes.
	Handle devices.Handle
	// End ends this export alone. It may be called at any time, but once.
	End func()
}

// Export names the memory of the file ino for another process. The content is
// moved into one allocation first where it is not. While it is exported, what
// was exported can't be cut.
func (s *Store) Export(_ context.Context, ino Ino, _ Caller, _ ExportOptions) (Exported, error) {
	return Exported{}, fmt.Errorf("export object %d: %w", ino, ErrUnsupported)
}

// EndExport ends every export of the file: it may be cut again. Who has the
// memory mapped keeps it as long as the vendor's library lets him.
func (s *Store) EndExport(_ context.Context, ino Ino) error {
	return fmt.Errorf("end the exports of object %d: %w", ino, ErrUnsupported)
}
