package cudalike

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// pinner implements devices.Pinner.
type pinner struct{ d *device }

var _ devices.Pinner = pinner{}

// PinHost locks mem as card.Pinner does, if it has the alignment that the runtime requires.
func (p pinner) PinHost(mem []byte) (unpin func(), err error) {
	name, table := p.d.Info().Name, p.d.t.pin
	if align := table.align; len(mem) == 0 || addressOf(mem)%align != 0 || uintptr(len(mem))%align != 0 {
		return nil, fmt.Errorf("pin %d bytes at %#x on %s: both must be multiples of %d: %w",
			len(mem), addressOf(mem), name, align, devices.ErrUnsupported)
	}
	unpin, err = card.NewPinner(p.d.Card, table.register, table.unregister).PinHost(mem)
	if err != nil {
		return nil, fmt.Errorf("pin %d bytes on %s: %w", len(mem), name, err)
	}
	return unpin, nil
}
