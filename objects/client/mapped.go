package client

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Mapping is the memory of a file in this process: what is stored in Bytes is
// in the file, and the other way round, with no copy between. It is what a
// file of the host tier, or of a simulated device, gives; device memory is
// opened by the vendor's library, with what Export tells.
type Mapping struct {
	// Bytes are the content, until Close.
	Bytes []byte
	// Export describes the mapped memory.
	Export *Export

	whole []byte
}

// Map maps the memory of the file at path, all of what it holds now. The file
// can't be cut until Close; what it grows by is not in the mapping.
//
// Errors: those of OpenExport; also where the memory is not the host's.
func Map(ctx context.Context, path string) (*Mapping, error) {
	e, err := OpenExport(ctx, path, devices.HandleMemfd)
	if err != nil {
		return nil, err
	}
	m, err := e.Map()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %s: %w", path, err), e.Close())
	}
	return m, nil
}

// Map maps host memory, whose Close then closes the export too. It begins in
// the page in which the memory does.
func (e *Export) Map() (*Mapping, error) {
	if e.File == nil || len(e.Memory.Pieces) != 1 {
		return nil, errAnswer
	}
	fd, err := numberOf(e.File)
	if err != nil {
		return nil, err
	}
	p := e.Memory.Pieces[0]
	before := uint64(p.Offset) % uint64(unix.Getpagesize())
	whole, err := unix.Mmap(fd, int64(uint64(p.Offset)-before), int(before+uint64(p.Size)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes at %d: %w", p.Size, p.Offset, err)
	}
	return &Mapping{Bytes: whole[before:], Export: e, whole: whole}, nil
}

// Close takes the memory out of this process, where nobody may touch Bytes any
// more, and ends the export. It is called once.
func (m *Mapping) Close() error {
	m.Bytes = nil
	err := unix.Munmap(m.whole)
	if err != nil {
		err = fmt.Errorf("unmap: %w", err)
	}
	return errors.Join(err, m.Export.Close())
}
