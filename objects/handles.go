package objects

import (
	"fmt"
	"os"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
)

// HandlesOf makes the handles of a memory's pieces, as a BindRequest takes them, from
// the descriptors that came with it: the FD of a piece is an index into their list. The
// caller keeps ownership of the descriptors; the handles have duplicates. A piece
// without an FD, for example one that is named by a path, gets a handle without a
// descriptor. Without descriptors there are no handles.
//
// Errors: ErrInvalid for an index outside the list, and for a descriptor that no piece
// uses.
func HandlesOf(m share.Memory, files []*os.File) (handles []devices.Handle, err error) {
	if len(files) == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			CloseHandles(handles)
			handles = nil
		}
	}()
	used := make([]bool, len(files))
	for i, p := range m.Pieces {
		h := devices.Handle{Kind: p.Kind, Device: m.Device, Offset: p.Offset, Size: p.Size, Allocation: p.Allocation}
		if p.FD != nil {
			if *p.FD < 0 || *p.FD >= len(files) {
				return handles, fmt.Errorf("piece %d: descriptor index %d, but %d descriptors were passed: %w", i, *p.FD, len(files), ErrInvalid)
			}
			used[*p.FD] = true
			// Several pieces may use the same descriptor, and each handle is closed.
			if h.File, err = owner.Duplicate(files[*p.FD]); err != nil {
				return handles, fmt.Errorf("piece %d: %w", i, err)
			}
		}
		handles = append(handles, h)
	}
	if i := slices.Index(used, false); i >= 0 {
		return handles, fmt.Errorf("no piece refers to descriptor %d: %w", i, ErrInvalid)
	}
	return handles, nil
}

// CloseHandles closes the descriptors of handles that were not taken over.
func CloseHandles(handles []devices.Handle) {
	for i := range handles {
		_ = handles[i].Close() // nothing was written through it
	}
}
