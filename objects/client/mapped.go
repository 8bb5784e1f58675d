package client

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Mapping is the memory of a file in this process: Bytes and the content of the file are the
// same memory, without a copy between them. It is available for files of the host tier and of
// simulated devices; device memory is opened by the vendor's library, with the information in
// Export.
type Mapping struct {
	// Bytes is the content, until Close.
	Bytes []byte
	// Export describes the mapped memory.
	Export *Export

	whole []byte
}

// Map maps the memory of the file at path, all of its present content. The file can't be
// truncated until Close; bytes that are added later are not in the mapping.
//
// Errors: those of OpenExport; an error if the memory is not host memory.
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

// Map maps host memory. Closing the mapping also closes the export. The mapping starts at the
// page that contains the start of the memory.
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
		return nil, fmt.Errorf("map %d bytes at offset %d: %w", p.Size, p.Offset, err)
	}
	return &Mapping{Bytes: whole[before:], Export: e, whole: whole}, nil
}

// Close unmaps the memory, after which Bytes must not be accessed, and ends the export. It
// must be called once.
func (m *Mapping) Close() error {
	m.Bytes = nil
	err := unix.Munmap(m.whole)
	if err != nil {
		err = fmt.Errorf("unmap: %w", err)
	}
	return errors.Join(err, m.Export.Close())
}
