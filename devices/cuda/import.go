package cuda

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// descriptorOf returns a descriptor of physical memory that can be exported.
func (d *device) descriptorOf(physical cuPhysical) (*os.File, error) {
	fd, err := d.api.exportPhysical(physical)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), "cuda memory"), nil
}

// importBlock maps the first n bytes of the memory of a descriptor, a multiple of units.least.
func (d *device) importBlock(f *os.File, n devices.Size) (*card.Block, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", devices.ErrHandle, err)
	}
	// The function expects the number of the descriptor itself in place of a pointer.
	var physical cuPhysical
	cerr := conn.Control(func(fd uintptr) {
		physical, err = ask[cuPhysical](d.api, "cuMemImportFromShareableHandle", d.api.MemImport, fd, cuHandlePosixFD)
	})
	if cerr != nil {
		return nil, fmt.Errorf("%w: %w", devices.ErrHandle, cerr)
	}
	if err != nil {
		return nil, refused("the descriptor does not refer to memory of a card", err)
	}
	b, err := d.mapImported(physical, n)
	if err != nil {
		return nil, errors.Join(err, d.api.releasePhysical(physical))
	}
	return b, nil
}

// mapImported maps physical memory of this card.
func (d *device) mapImported(physical cuPhysical, n devices.Size) (*card.Block, error) {
	p, err := d.api.properties(physical)
	if err != nil {
		return nil, refused("the driver does not report where the memory is", err)
	}
	if p.Location.Type != cuLocationDevice || p.Location.ID != int32(d.entry.device) {
		return nil, fmt.Errorf("the memory belongs to another card, number %d: %w", p.Location.ID, devices.ErrHandle)
	}
	b, err := d.newMapped(physical, n)
	if err != nil {
		return nil, refused("the memory is smaller than the handle says, or cannot be mapped", err)
	}
	return b, nil
}
