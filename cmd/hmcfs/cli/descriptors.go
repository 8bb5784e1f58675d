package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/share"
)

// collect takes the descriptors that a text names, with the rights of this
// process, and makes the request in which they travel. The descriptors are the
// caller's, also with an error.
func collect(m share.Memory) (question adminapi.BindRequest, files []*os.File, err error) {
	m.Pieces = slices.Clone(m.Pieces)
	places := map[string]int{}
	for i := range m.Pieces {
		p := &m.Pieces[i]
		if p.Kind == devices.HandleIPC {
			continue
		}
		name := p.Path
		if p.FD != nil {
			name = fmt.Sprintf("/proc/%d/fd/%d", m.PID, *p.FD)
		}
		place, known := places[name]
		if !known {
			f, err := take(m.PID, *p)
			if err != nil {
				return question, files, fmt.Errorf("piece %d: %w", i, err)
			}
			place = len(files)
			places[name] = place
			files = append(files, f)
			question.Origins = append(question.Origins, adminapi.Origin{FD: p.FD, Path: p.Path})
		}
		if err := measure(p, files[place]); err != nil {
			return question, files, fmt.Errorf("piece %d: %w", i, err)
		}
		p.FD, p.Path = &place, ""
	}
	if m.Size == 0 {
		for _, p := range m.Pieces {
			m.Size += p.Size
		}
	}
	question.Memory, question.Descriptors = m, len(files)
	return question, files, nil
}

// take opens what a piece names.
func take(pid int, p share.Piece) (*os.File, error) {
	if p.FD == nil {
		if !filepath.IsAbs(p.Path) {
			return nil, fmt.Errorf("%q is no absolute path, by which the daemon could find it too", p.Path)
		}
		return os.OpenFile(p.Path, os.O_RDWR, 0)
	}
	f, err := fromProcess(pid, *p.FD)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("process %d does not run", pid)
	case errors.Is(err, unix.EBADF):
		return nil, fmt.Errorf("process %d has no descriptor %d", pid, *p.FD)
	case errors.Is(err, unix.EPERM) && p.Kind == devices.HandleMemfd:
		// What may not be taken may still be opened anew, where the kernel
		// restricts tracing to child processes.
		again, oerr := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, *p.FD), os.O_RDWR, 0)
		if oerr == nil {
			return again, nil
		}
	}
	return nil, fmt.Errorf("descriptor %d of process %d: %w; run this as that process's user, or let the process bind by itself", *p.FD, pid, err)
}

// fromProcess duplicates another process's descriptor.
func fromProcess(pid, number int) (*os.File, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(process) }()
	fd, err := unix.PidfdGetfd(process, number, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "descriptor "+strconv.Itoa(number)), nil
}

// measure fills in the size of a piece that is the rest of its memory.
func measure(p *share.Piece, f *os.File) error {
	if p.Size != 0 || p.Kind != devices.HandleMemfd {
		return nil
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if uint64(st.Size()) <= uint64(p.Offset) {
		return fmt.Errorf("%d bytes end before the offset %d", st.Size(), p.Offset)
	}
	p.Size = devices.Size(st.Size()) - devices.Size(p.Offset)
	return nil
}
