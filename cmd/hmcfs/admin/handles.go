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
// none were announced. The places in the request's text are taken out of it,
// as they mean nothing further on.
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
		h, err := handleOf(r.Memory, i, q.memory, used)
		if err != nil {
			return handles, fmt.Errorf("piece %d: %w", i, err)
		}
		handles = append(handles, h)
	}
	if i := slices.Index(used, false); i >= 0 {
		return handles, fmt.Errorf("%w: no piece is in descriptor %d", errInvalid, i)
	}
	return handles, nil
}

// handleOf makes the handle of one piece. Its descriptor is one of its own:
// several pieces may lie in the same.
func handleOf(m share.Memory, i int, files []*os.File, used []bool) (devices.Handle, error) {
	p := &m.Pieces[i]
	h := devices.Handle{Kind: p.Kind, Device: m.Device, Offset: p.Offset, Size: p.Size, Allocation: p.Allocation}
	var err error
	switch {
	case p.Path != "":
		return h, fmt.Errorf("%w: a path beside descriptors; open it, and send its descriptor", errInvalid)
	case p.Kind == devices.HandleIPC && p.FD == nil:
		if h.Bytes, err = hex.DecodeString(p.Handle); err != nil {
			return h, fmt.Errorf("%w: handle: %w", errInvalid, err)
		}
		return h, nil
	case p.Kind == devices.HandleIPC || p.FD == nil || p.Handle != "":
		return h, fmt.Errorf("%w: kind %q wants a handle for ipc, and the place of a descriptor for all else", errInvalid, p.Kind)
	case *p.FD < 0 || *p.FD >= len(files):
		return h, fmt.Errorf("%w: descriptor %d of %d", errInvalid, *p.FD, len(files))
	}
	used[*p.FD] = true
	h.File, err = duplicate(files[*p.FD])
	p.FD = nil
	return h, err
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
