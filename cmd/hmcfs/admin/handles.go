package admin

import (
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/share"
)

// handlesOf returns the handles of the pieces, made from the descriptors received; nil if
// none were announced. Pieces without a descriptor, such as those named by a path, have a
// handle without one.
func handlesOf(r adminapi.BindRequest, q *question) ([]devices.Handle, error) {
	if err := announced(r.Descriptors, len(q.memory)); err != nil {
		return nil, err
	}
	return objects.HandlesOf(r.Memory, q.memory)
}

// placed returns the description of an export whose descriptor is passed with it.
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
