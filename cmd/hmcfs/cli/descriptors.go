package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/share"
)

// collect duplicates the descriptors that a description names from the process that has
// them, with the privileges of this process; the description then contains their indexes.
// If that is not permitted, their numbers remain, for the daemon to try. The caller closes
// the descriptors.
func collect(m share.Memory) (share.Memory, []*os.File, error) {
	m.Pieces = slices.Clone(m.Pieces)
	if err := measureAll(&m); err != nil {
		return m, nil, err
	}
	files, places, err := takeAll(m)
	if errors.Is(err, unix.EPERM) {
		return m, nil, nil
	}
	if err != nil {
		return m, nil, err
	}
	for i := range m.Pieces {
		if p := &m.Pieces[i]; p.FD != nil {
			place := places[*p.FD]
			p.FD, p.Path = &place, ""
		}
	}
	return m, files, nil
}

// takeAll duplicates every descriptor that the pieces name, each once, and returns their
// indexes by number. On an error none is left open.
func takeAll(m share.Memory) (files []*os.File, places map[int]int, err error) {
	places = map[int]int{}
	for i, p := range m.Pieces {
		if p.FD == nil {
			continue
		}
		if _, known := places[*p.FD]; known {
			continue
		}
		f, err := fromProcess(m.PID, *p.FD)
		if err != nil {
			adminapi.CloseAll(files)
			return nil, nil, fmt.Errorf("piece %d: %w", i, err)
		}
		places[*p.FD] = len(files)
		files = append(files, f)
	}
	return files, places, nil
}

func fromProcess(pid, number int) (*os.File, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(process) }()
	fd, err := unix.PidfdGetfd(process, number, 0)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d of process %d: %w", number, pid, err)
	}
	return os.NewFile(uintptr(fd), "descriptor "+strconv.Itoa(number)), nil
}

// measureAll fills in missing sizes: a piece without a size extends to the end of its
// memory.
func measureAll(m *share.Memory) error {
	var sum devices.Size
	for i := range m.Pieces {
		p := &m.Pieces[i]
		if p.Size == 0 && p.Kind == devices.HandleMemfd {
			n, err := rest(m.PID, *p)
			if err != nil {
				return fmt.Errorf("piece %d: %w", i, err)
			}
			p.Size = n
		}
		sum += p.Size
	}
	if m.Size == 0 {
		m.Size = sum
	}
	return nil
}

// rest returns the number of bytes of host memory after the offset of a piece.
func rest(pid int, p share.Piece) (devices.Size, error) {
	path := p.Path
	if p.FD != nil {
		path = fmt.Sprintf("/proc/%d/fd/%d", pid, *p.FD)
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && p.FD != nil:
		return 0, fmt.Errorf("process %d does not exist, or has no descriptor %d", pid, *p.FD)
	case errors.Is(err, os.ErrNotExist):
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("cannot determine its size; give --size: %w", err)
	}
	if !st.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is neither a memfd nor a file of a tmpfs", path)
	}
	if st.Size() == 0 {
		return 0, fmt.Errorf("%s is empty; set its size first, as with ftruncate", path)
	}
	if uint64(st.Size()) <= uint64(p.Offset) {
		return 0, fmt.Errorf("the %d bytes of %s end before offset %d", st.Size(), path, p.Offset)
	}
	return devices.Size(st.Size()) - devices.Size(p.Offset), nil
}
