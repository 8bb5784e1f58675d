package admin

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/share"
)

// handlesOf makes the pieces' handles of the descriptors that came; nil where
// none were announced. The places in the request's text make way for where the
// descriptors are from, if that is told: further on they mean nothing.
func handlesOf(r adminapi.BindRequest, q *question) (handles []devices.Handle, err error) {
	if r.Descriptors != len(q.memory) {
		few := "few"
		if len(q.memory) > r.Descriptors {
			few = "many"
		}
		return nil, fmt.Errorf("%w: too %s descriptors: %d are announced, %d have come", errInvalid, few, r.Descriptors, len(q.memory))
	}
	if len(r.Origins) != 0 && len(r.Origins) != r.Descriptors {
		return nil, fmt.Errorf("%w: %d origins of %d descriptors", errInvalid, len(r.Origins), r.Descriptors)
	}
	if r.Descriptors == 0 {
		return nil, nil
	}
	defer func() {
		if err == nil {
			return
		}
		for i := range handles {
			_ = handles[i].Close() // nothing was written through it
		}
		handles = nil
	}()
	used := make([]bool, len(q.memory))
	for i := range r.Memory.Pieces {
		h, place, herr := handleOf(r.Memory, i, q.memory)
		if herr != nil {
			return handles, fmt.Errorf("piece %d: %w", i, herr)
		}
		handles = append(handles, h)
		if place < 0 {
			continue
		}
		used[place] = true
		r.Memory.Pieces[i].FD = nil
		if len(r.Origins) > 0 {
			r.Memory.Pieces[i].FD = r.Origins[place].FD
		}
		if len(r.Origins) > 0 && q.trusted {
			r.Memory.Pieces[i].Path = r.Origins[place].Path
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return handles, fmt.Errorf("%w: no piece is in descriptor %d", errInvalid, i)
	}
	return handles, nil
}

// handleOf makes the handle of one piece, and tells the place of its
// descriptor, -1 for none. The handle has a descriptor of its own: several
// pieces may lie in the same.
func handleOf(m share.Memory, i int, files []*os.File) (h devices.Handle, place int, err error) {
	p := &m.Pieces[i]
	h = devices.Handle{Kind: p.Kind, Device: m.Device, Offset: p.Offset, Size: p.Size, Allocation: p.Allocation}
	switch {
	case p.Path != "":
		return h, -1, fmt.Errorf("%w: a path beside descriptors; open it, and send its descriptor", errInvalid)
	case p.Kind == devices.HandleIPC && p.FD == nil:
		if h.Bytes, err = hex.DecodeString(p.Handle); err != nil {
			return h, -1, fmt.Errorf("%w: handle: %w", errInvalid, err)
		}
		return h, -1, nil
	case p.Kind == devices.HandleIPC || p.FD == nil || p.Handle != "":
		return h, -1, fmt.Errorf("%w: kind %q wants a handle for ipc, and the place of a descriptor for all else", errInvalid, p.Kind)
	case *p.FD < 0 || *p.FD >= len(files):
		return h, -1, fmt.Errorf("%w: descriptor %d of %d", errInvalid, *p.FD, len(files))
	}
	h.File, err = duplicate(files[*p.FD])
	return h, *p.FD, err
}

// duplicate makes a second descriptor of a file.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	var fd int
	var inner error
	err = raw.Control(func(old uintptr) { fd, inner = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = inner
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
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
