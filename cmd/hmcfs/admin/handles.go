package admin

import (
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/share"
)

// handlesOf makes the pieces' handles of the descriptors that came; nil where
// none were announced. Pieces that no descriptor is told for, such as those
// that a path names, have one without.
func handlesOf(r adminapi.BindRequest, q *question) ([]devices.Handle, error) {
	if err := announced(r.Descriptors, len(q.memory)); err != nil {
		return nil, err
	}
	return objects.HandlesOf(r.Memory, q.memory)
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
