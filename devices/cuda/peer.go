package cuda

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// CopyPeer copies from another card directly to this one. If the two can't access each
// other, the driver would silently copy through the host; this method returns
// ErrUnsupported instead, so that the caller can stage the bytes and count them.
func (d *device) CopyPeer(ctx context.Context, dst, src devices.Span) error {
	from, err := d.peer(src)
	if err != nil {
		return err
	}
	if from == d {
		return d.Copy(ctx, dst, src)
	}
	leave, err := d.BeginPeer(ctx, from.Card, dst, src)
	if err != nil || dst.Len == 0 {
		return end(leave, err)
	}
	defer leave()
	if err := d.link(from, card.BlockOf(dst), card.BlockOf(src)); err != nil {
		return err
	}
	c := peerCopy{dst: card.AddressOf(dst), src: card.AddressOf(src), to: d.context, from: from.context}
	return d.withLane(ctx, func(l *lane) error {
		return l.pump(ctx, d.api, src.Len, insidePiece, mover{start: func(s moves.Slot, off, n devices.Size) error {
			part := c
			part.dst, part.src = c.dst.At(off), c.src.At(off)
			return d.api.copyPeer(l.streams[s], part, n)
		}})
	})
}

// peer returns the device of a span, if it is a card of the same driver.
func (d *device) peer(s devices.Span) (*device, error) {
	if s.Mem == nil {
		return nil, fmt.Errorf("span without memory: %w", devices.ErrRange)
	}
	from, ok := s.Mem.Device().(*device)
	// A card that is opened twice is not a peer of itself.
	if !ok || from.api != d.api || from != d && from.entry.device == d.entry.device {
		return nil, fmt.Errorf("copy from %s to %s: %w", s.Mem.Device().Info().Name, d.Info().Name, devices.ErrUnsupported)
	}
	return from, nil
}

// link enables access between the two cards: once for the pair, and for each block of
// mapped physical memory, which the pair's access does not include.
func (d *device) link(from *device, dst, src *card.Block) error {
	if err := d.Reach(from.Card, true, func() (bool, error) { return d.linkPair(from) }); err != nil {
		return err
	}
	if err := from.open(src, d.entry.device); err != nil {
		return err
	}
	return d.open(dst, from.entry.device)
}

// linkPair enables access in both directions, and reports whether that is possible.
func (d *device) linkPair(from *device) (bool, error) {
	for _, way := range [][2]*device{{d, from}, {from, d}} {
		one, other := way[0], way[1]
		can, err := d.api.canAccessPeer(one.entry.device, other.entry.device)
		if err != nil || !can {
			return false, err
		}
		err = one.On(func() error {
			return d.api.check("cuCtxEnablePeerAccess", code(d.api.EnablePeer.Call(uintptr(other.context), 0)))
		})
		switch codeOf(err) {
		case codePeerEnabled:
		case codePeerUnsupported, codeTooManyPeers:
			return false, fmt.Errorf("%w: %w", devices.ErrUnsupported, err)
		default:
			if err != nil {
				return false, err
			}
		}
	}
	d.Log.Info("peer access enabled", zap.String("peer", string(from.Info().Name)))
	return true, nil
}

// open gives a peer access to a block, if that has to be enabled explicitly.
func (d *device) open(b *card.Block, peer cuDevice) error {
	m := mappingOf(b)
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peers[peer] {
		return nil
	}
	if err := d.On(func() error { return d.api.setAccess(m.addr, m.size, peer) }); err != nil {
		return err
	}
	if m.peers == nil {
		m.peers = map[cuDevice]bool{}
	}
	m.peers[peer] = true
	return nil
}
