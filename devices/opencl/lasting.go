package opencl

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
)

var _ devices.Lasting = (*mappedDevice)(nil)

// AllocIn implements devices.Lasting, for a device that is the host's processor: any other
// driver may copy what it is told to use in place.
func (d *mappedDevice) AllocIn(ctx context.Context, f *os.File, n devices.Size) (*devices.Memory, error) {
	if err := d.mayLast(); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("look at the file for memory of %s: %w: %w", d.info.Name, devices.ErrDevice, err)
	}
	more := n - min(n, devices.Size(st.Blocks)*512)
	return d.alloc(ctx, n, more, func(_ context.Context, n devices.Size) (*buffer, error) {
		own, err := memfd.Map(f, 0, int(n))
		if err != nil {
			return nil, d.allocError(n, check("mmap ("+err.Error()+")", codeOutOfHostMemory))
		}
		// Without huge pages the memory works but is slower to access.
		_ = unix.Madvise(own, unix.MADV_HUGEPAGE)
		if more > 0 {
			if err = populate(own); err != nil {
				return nil, errors.Join(d.allocError(n, check("madvise ("+err.Error()+")", codeOutOfHostMemory)), unmapOwn(own))
			}
		}
		b, err := d.bufferOver(own)
		if err != nil {
			return nil, d.allocError(n, err)
		}
		d.add(b)
		return b, nil
	})
}

// populate allocates the pages of a mapping now, so that no access fails later for want of
// memory. Linux before 5.14 can't do it.
func populate(p []byte) error {
	for {
		if err := unix.Madvise(p, unix.MADV_POPULATE_WRITE); !errors.Is(err, unix.EINTR) {
			if errors.Is(err, unix.EINVAL) {
				return nil
			}
			return err
		}
	}
}

// Resume implements devices.Lasting.
func (d *mappedDevice) Resume(e devices.Epoch) error {
	if err := d.mayLast(); err != nil {
		return err
	}
	d.epoch = e
	return nil
}

func (d *mappedDevice) mayLast() error {
	if d.entry.isHost() {
		return nil
	}
	return fmt.Errorf("memory of %s can't be a file: %w", d.info.Name, devices.ErrUnsupported)
}
