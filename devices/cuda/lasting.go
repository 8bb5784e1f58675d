package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

var (
	_ devices.Lasting      = (*device)(nil)
	_ devices.LastingMaker = (*device)(nil)
)

// LastingUnit implements devices.LastingMaker.
func (d *device) LastingUnit() devices.Size {
	if d.mayLast() != nil {
		return 0
	}
	return d.units.exported
}

// MakeLasting implements devices.LastingMaker. The descriptor alone has the memory: the
// handle by which it was made is released, and nothing is mapped.
func (d *device) MakeLasting(ctx context.Context, n devices.Size) (*os.File, error) {
	if err := d.mayLast(); err != nil {
		return nil, err
	}
	leave, err := d.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var f *os.File
	err = d.On(func() (err error) {
		f, err = d.newDescriptor(card.RoundUp(n, d.units.exported))
		return err
	})
	if err != nil {
		return nil, d.AllocError(n, err)
	}
	return f, nil
}

// newDescriptor makes physical memory that only its descriptor has. n is a multiple of the unit.
func (d *device) newDescriptor(n devices.Size) (*os.File, error) {
	physical, err := d.api.create(n, d.exportedProp())
	if err != nil {
		return nil, err
	}
	f, err := d.descriptorOf(physical)
	released := d.api.releasePhysical(physical)
	if err == nil && released != nil {
		err = f.Close()
	}
	if err = errors.Join(released, err); err != nil {
		return nil, err
	}
	return f, nil
}

// AllocIn implements devices.Lasting.
func (d *device) AllocIn(ctx context.Context, f *os.File, n devices.Size) (*devices.Memory, error) {
	if err := d.mayLast(); err != nil {
		return nil, err
	}
	return d.Take(ctx, n, card.RoundUp(n, d.units.exported), func(whole devices.Size) (*card.Block, error) {
		return d.importBlock(f, whole)
	}, nil)
}

// Resume implements devices.Lasting.
func (d *device) Resume(e devices.Epoch) error {
	if err := d.mayLast(); err != nil {
		return err
	}
	return d.Card.Resume(e)
}

// mayLast returns an ErrUnsupported if the driver makes no descriptors of memory, or the
// device is smaller than the unit of such memory.
func (d *device) mayLast() error {
	if d.entry.export && d.units.exported > 0 && d.units.exported <= d.Info().Total {
		return nil
	}
	return fmt.Errorf("memory of %s behind a descriptor: %w", d.Info().Name, devices.ErrUnsupported)
}
