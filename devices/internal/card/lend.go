package card

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// Describe returns the description of a card of which n bytes are used; whole describes the
// entire card.
func Describe(whole devices.Info, n devices.Size) devices.Info {
	whole.Total, whole.MaxAlloc = n, n
	return whole
}

// Found returns a card that is not opened, with its default size; free is how much of the
// entire card is free.
func Found(whole devices.Info, free devices.Size) devices.Found {
	info := Describe(whole, byDefault(whole))
	return devices.Found{Info: info, Usage: devices.Usage{Total: info.Total, Free: min(info.Total, free)}}
}

// byDefault returns how much of a card's memory is used if the spec does not say: the
// contexts of hmcfs and of other programs need some of it.
func byDefault(whole devices.Info) devices.Size { return whole.Total / 10 * 9 }

// ReadParams reads the parameters of a spec for one card, and returns how much of its
// memory to use.
func ReadParams(spec devices.Spec, whole devices.Info) (devices.Size, error) {
	p := spec.Read()
	size := p.Size("size", byDefault(whole))
	faults := []error{p.Err()}
	if size > whole.Total {
		faults = append(faults, fmt.Errorf("device %q: size is %v, %s has %v", spec.Text, size, whole.Model, whole.Total))
	}
	return size, errors.Join(faults...)
}
