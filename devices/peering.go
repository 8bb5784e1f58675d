package devices

import "context"

// Peering is a pair of devices of one family that can access each other's memory directly,
// so that PeerCopier copies between them without the host.
type Peering struct {
	A Ordinal
	B Ordinal
	// Rank orders such pairs of the family by speed: 0 is the fastest.
	Rank int
}

// PeerFinder is the ability of a driver to report which of its devices can access each
// other, without opening them.
type PeerFinder interface {
	// Peerings lists each pair once, the lower ordinal first.
	Peerings(ctx context.Context) ([]Peering, error)
}

// Peerings lists the pairs of a family's devices that can access each other; none if its
// driver can't determine that.
func Peerings(ctx context.Context, d Driver) ([]Peering, error) {
	f, ok := d.(PeerFinder)
	if !ok {
		return nil, nil
	}
	return f.Peerings(ctx)
}
