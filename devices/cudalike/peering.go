package cudalike

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/hmcfs/hmcfs/devices"
)

var _ devices.PeerFinder = (*Driver)(nil)

// Peerings queries the runtime about each pair of devices, acquiring them temporarily. The
// runtimes don't report the speed of a pair.
func (d *Driver) Peerings(ctx context.Context) ([]devices.Peering, error) {
	t, n, err := d.devices()
	if err != nil || t.peer == nil {
		return nil, err
	}
	var out []devices.Peering
	for one := range n {
		for other := one + 1; other < n; other++ {
			if err = ctx.Err(); err != nil {
				return out, err
			}
			mutual, err := mutual(t, one, other)
			if err != nil {
				return out, fmt.Errorf("%s%d and %s%d: %w", d.family.name, one, d.family.name, other, err)
			}
			if mutual {
				out = append(out, devices.Peering{A: devices.Ordinal(one), B: devices.Ordinal(other)})
			}
		}
	}
	return out, nil
}

// mutual reports whether each of two devices can access the other.
func mutual(t *table, one, other int) (is bool, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var both [2]binding
	for i, ordinal := range []int{one, other} {
		if both[i], err = t.acquire(ordinal); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, t.release(both[i])) }()
	}
	for i := range both {
		if err = t.set(both[i]); err != nil {
			return false, err
		}
		if is, err = t.peer.can(both[i], both[1-i]); err != nil || !is {
			return false, err
		}
	}
	return true, nil
}
