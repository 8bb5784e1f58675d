package cuda

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

var _ devices.PeerFinder = (*Driver)(nil)

// Peerings queries the driver about each pair of cards. Their rank is the driver's
// performance rank, which distinguishes NVLink from PCI; without it all ranks are equal.
func (d *Driver) Peerings(ctx context.Context) ([]devices.Peering, error) {
	a, err := d.library()
	if err != nil {
		return nil, err
	}
	entries, err := a.list(ctx, d.sys)
	if err != nil {
		return nil, err
	}
	var out []devices.Peering
	for i, one := range entries {
		for _, other := range entries[i+1:] {
			mutual, err := a.mutual(one.device, other.device)
			if err != nil {
				return out, fmt.Errorf("cuda%d and cuda%d: %w", one.Ordinal, other.Ordinal, err)
			}
			if mutual {
				out = append(out, devices.Peering{A: one.Ordinal, B: other.Ordinal, Rank: a.peerRank(one.device, other.device)})
			}
		}
	}
	return out, nil
}

// mutual reports whether each of two cards can access the other.
func (a *api) mutual(one, other cuDevice) (bool, error) {
	there, err := a.canAccessPeer(one, other)
	if err != nil || !there {
		return false, err
	}
	return a.canAccessPeer(other, one)
}

// peerRank returns the driver's rank of a link, 0 for the fastest and if it is not known.
func (a *api) peerRank(one, other cuDevice) int {
	if !a.P2PAttribute.Present() {
		return 0
	}
	rank, err := ask[int32](a, "cuDeviceGetP2PAttribute", a.P2PAttribute, cuPeerPerformanceRank, uintptr(one), uintptr(other))
	if err != nil {
		return 0
	}
	return int(max(rank, 0))
}
