package sim

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/hostmem"
	"github.com/hmcfs/hmcfs/devices/memfd"
)

var _ devices.Exporter = (*Device)(nil)

// ExportKinds returns the only supported kind: a memfd.
func (d *Device) ExportKinds() []devices.HandleKind {
	return []devices.HandleKind{devices.HandleMemfd}
}

// AllocShared allocates n bytes, which are zero, as a memfd.
func (d *Device) AllocShared(ctx context.Context, n devices.Size, kind devices.HandleKind) (*devices.Memory, error) {
	if kind != devices.HandleMemfd {
		return nil, fmt.Errorf("share memory of %s as %s, only %s is supported: %w",
			d.info.Name, kind, devices.HandleMemfd, devices.ErrUnsupported)
	}
	return d.alloc(ctx, n, mapShared)
}

// Export duplicates the memory's descriptor.
func (d *Device) Export(_ context.Context, m *devices.Memory) (devices.Handle, error) {
	if err := m.All().Check(d.self); err != nil {
		return devices.Handle{}, err
	}
	block, ok := m.Handle().(*hostmem.Block)
	if !ok {
		return devices.Handle{}, fmt.Errorf("export memory of %s: %w", d.info.Name, devices.ErrUnsupported)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a, live := d.blocks[block]
	switch {
	case d.closed:
		return devices.Handle{}, d.errClosed()
	case !live:
		return devices.Handle{}, d.errLost()
	case a.shared == nil:
		return devices.Handle{}, fmt.Errorf("export memory of %s that was not allocated to be exported: %w", d.info.Name, devices.ErrUnsupported)
	}
	fd, err := unix.FcntlInt(a.shared.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return devices.Handle{}, fmt.Errorf("export memory of %s: %w: %w", d.info.Name, devices.ErrDevice, err)
	}
	return devices.Handle{
		Kind: devices.HandleMemfd, Size: m.Size(), Allocation: m.Size(),
		File: os.NewFile(uintptr(fd), a.shared.Name()),
	}, nil
}

// mapShared maps a memfd whose size can't be changed.
func mapShared(n devices.Size) (*hostmem.Block, *os.File, error) {
	file, err := memfd.Create("hmcfs-sim", int64(n))
	if err != nil {
		return nil, nil, err
	}
	mapping, err := memfd.Map(file, 0, int(n))
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return hostmem.NewBlock(mapping), file, nil
}
