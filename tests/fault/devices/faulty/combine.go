package faulty

import "github.com/hmcfs/hmcfs/devices"

// has records the abilities of a device.
type has struct{ mapper, peer, pinner, tier bool }

func abilitiesOf(d devices.Device) (h has) {
	_, h.mapper = d.(devices.HostMapper)
	_, h.peer = d.(devices.PeerCopier)
	_, h.pinner = d.(devices.Pinner)
	_, h.tier = d.(devices.FileTier)
	return h
}

// There is one type for each combination of abilities, since a type cannot lose a method at run
// time.
type (
	withMapper struct {
		*core
		mapper
	}
	withPeer struct {
		*core
		peer
	}
	withMapperPeer struct {
		*core
		mapper
		peer
	}
	withPinner struct {
		*core
		pinner
	}
	withMapperPinner struct {
		*core
		mapper
		pinner
	}
	withPeerPinner struct {
		*core
		peer
		pinner
	}
	withMapperPeerPinner struct {
		*core
		mapper
		peer
		pinner
	}
	withTier struct {
		*core
		tier
	}
	withMapperTier struct {
		*core
		mapper
		tier
	}
	withPeerTier struct {
		*core
		peer
		tier
	}
	withMapperPeerTier struct {
		*core
		mapper
		peer
		tier
	}
	withPinnerTier struct {
		*core
		pinner
		tier
	}
	withMapperPinnerTier struct {
		*core
		mapper
		pinner
		tier
	}
	withPeerPinnerTier struct {
		*core
		peer
		pinner
		tier
	}
	withMapperPeerPinnerTier struct {
		*core
		mapper
		peer
		pinner
		tier
	}
)

// with returns the core with exactly the abilities h.
func (c *core) with(h has) devices.Device {
	m, p, n, t := mapper{c}, peer{c}, pinner{c}, tier{c}
	switch h {
	case has{mapper: true}:
		return &withMapper{c, m}
	case has{peer: true}:
		return &withPeer{c, p}
	case has{mapper: true, peer: true}:
		return &withMapperPeer{c, m, p}
	case has{pinner: true}:
		return &withPinner{c, n}
	case has{mapper: true, pinner: true}:
		return &withMapperPinner{c, m, n}
	case has{peer: true, pinner: true}:
		return &withPeerPinner{c, p, n}
	case has{mapper: true, peer: true, pinner: true}:
		return &withMapperPeerPinner{c, m, p, n}
	case has{tier: true}:
		return &withTier{c, t}
	case has{mapper: true, tier: true}:
		return &withMapperTier{c, m, t}
	case has{peer: true, tier: true}:
		return &withPeerTier{c, p, t}
	case has{mapper: true, peer: true, tier: true}:
		return &withMapperPeerTier{c, m, p, t}
	case has{pinner: true, tier: true}:
		return &withPinnerTier{c, n, t}
	case has{mapper: true, pinner: true, tier: true}:
		return &withMapperPinnerTier{c, m, n, t}
	case has{peer: true, pinner: true, tier: true}:
		return &withPeerPinnerTier{c, p, n, t}
	case has{mapper: true, peer: true, pinner: true, tier: true}:
		return &withMapperPeerPinnerTier{c, m, p, n, t}
	}
	return c
}
