package sim

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/hostmem"
	"github.com/hmcfs/hmcfs/devices/memfd"
)

var _ devices.Lasting = (*Device)(nil)

// AllocIn implements devices.Lasting.
func (d *Device) AllocIn(ctx context.Context, f *os.File, n devices.Size) (*devices.Memory, error) {
	return d.alloc(ctx, n, func(n devices.Size) (*hostmem.Block, *os.File, error) {
		mapping, err := memfd.Map(f, 0, int(n))
		if err != nil {
			return nil, nil, err
		}
		// As in mapAnonymous.
		_ = unix.Madvise(mapping, unix.MADV_HUGEPAGE)
		return hostmem.NewBlock(mapping), nil, nil
	})
}

// Resume implements devices.Lasting. It does not go back to an epoch before a Crash.
func (d *Device) Resume(e devices.Epoch) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.crashed && e < d.Epoch() {
		return d.errLost()
	}
	d.epoch.Store(uint64(e))
	return nil
}
