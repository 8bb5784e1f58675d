package admin

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
)

// handlesOf makes the pieces' handles of the descriptors that came; nil where
// none were announced. Pieces that no descriptor is told for, such as those
// that a path names, have one without.
func handlesOf(r adminapi.BindRequest, q *question) (handles []devices.Handle, err error) {
	if r.Descriptors != len(q.memory) {
		few := "few"
		if len(q.memory) > r.Descriptors {
			few = "many"
		}
		return nil, fmt.Errorf("%w: too %s descriptors: %d are announced, %d have come", errInvalid, few, r.Descriptors, len(q.memory))
	}
	if r.Descriptors == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			closeHandles(handles)
			handles = nil
		}
	}()
	used := make([]bool, len(q.memory))
	for i, p := range r.Memory.Pieces {
		h := devices.Handle{Kind: p.Kind, Device: r.Memory.Device, Offset: p.Offset, Size: p.Size, Allocation: p.Allocation}
		if p.FD != nil {
			if *p.FD < 0 || *p.FD >= len(q.memory) {
				return handles, fmt.Errorf("%w: piece %d: descriptor %d of %d", errInvalid, i, *p.FD, len(q.memory))
			}
			used[*p.FD] = true
			// Several pieces may lie in the same, and each handle is closed.
			if h.File, err = owner.Duplicate(q.memory[*p.FD]); err != nil {
				return handles, fmt.Errorf("piece %d: %w", i, err)
			}
		}
		handles = append(handles, h)
	}
	if i := slices.Index(used, false); i >= 0 {
		return handles, fmt.Errorf("%w: no piece is in descriptor %d", errInvalid, i)
	}
	return handles, nil
}

func closeHandles(handles []devices.Handle) {
	for i := range handles {
		_ = handles[i].Close() // nothing was written through it
	}
}

// placed is an export's text where its descriptor travels beside it.
func placed(m share.Memory) share.Memory {
	m.Pieces = slices.Clone(m.Pieces)
	for i := range m.Pieces {
		if m.Pieces[i].Kind != devices.HandleIPC {
			first := 0
			m.Pieces[i].FD, m.Pieces[i].Path = &first, ""
		}
	}
	return m
}
