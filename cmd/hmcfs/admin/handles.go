package admin

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
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
			if h.File, err = duplicate(q.memory[*p.FD]); err != nil {
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
