package devices

import "context"

// Peering is two devices of one family of which each reaches the other's memory
// by itself, so that PeerCopier copies between them without the host.
type Peering struct {
	A Ordinal
	B Ordinal
	// Rank orders such pairs of the family by speed: 0 is the
	// fastest.
	Rank int
}

// PeerFinder is the ability of a driver to tell which of its devices reach each
// other, without opening them.
type PeerFinder interface {
	// Peerings lists each pair once, the lower ordinal first.
	Peerings(ctx context.Context) ([]Peering, error)
}

// Peerings lists the devices of a family that reach each other; none where its
// driver can't tell.
func Peerings(ctx context.Context, d Driver) ([]Peering, error) {
	f, ok := d.(PeerFinder)
	if !ok {
		return nil, nil
	}
	return f.Peerings(ctx)
}
