package cuda

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// CopyPeer copies from another card straight to this one. Where the two don't
// reach each other the driver would go through the host, in silence; that is
// ErrUnsupported here, so that whoever stages the bytes can count them.
func (d *device) CopyPeer(ctx context.Context, dst, src devices.Span) error {
	from, err := d.peer(src)
	if err != nil {
		return err
	}
	if from == d {
		return d.Copy(ctx, dst, src)
	}
	if err = src.Check(from); err != nil {
		return err
	}
	if dst.Len != src.Len {
		return fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, d.info.Name, devices.ErrRange)
	}
	leave, err := d.enterBoth(ctx, from, dst)
	if err != nil || dst.Len == 0 {
		return end(leave, err)
	}
	defer leave()
	if err := d.link(from, blockOf(dst), blockOf(src)); err != nil {
		return err
	}
	c := peerCopy{dst: addressOf(dst), src: addressOf(src), to: d.context, from: from.context}
	return d.withLane(ctx, func(l *lane) error {
		return l.pump(ctx, d.api, src.Len, insidePiece, mover{start: func(s moves.Slot, off, n devices.Size) error {
			part := c
			part.dst, part.src = c.dst.at(off), c.src.at(off)
			return d.api.copyPeer(l.streams[s], part, n)
		}})
	})
}

// peer is the device of a span, if it is a card of the same driver.
func (d *device) peer(s devices.Span) (*device, error) {
	if s.Mem == nil {
		return nil, fmt.Errorf("span without memory: %w", devices.ErrRange)
	}
	from, ok := s.Mem.Device().(*device)
	// A card that is opened twice is no peer of itself.
	if !ok || from.api != d.api || from != d && from.entry.device == d.entry.device {
		return nil, fmt.Errorf("copy from %s to %s: %w", s.Mem.Device().Info().Name, d.info.Name, devices.ErrUnsupported)
	}
	return from, nil
}

// enterBoth begins a copy from another device to a span of this one. Everybody
// enters the lower ordinal first, so that two closers can't come between two
// copies in opposite directions.
//
// +checklocksignore: what it locks is the caller's to unlock, by leave.
func (d *device) enterBoth(ctx context.Context, from *device, dst devices.Span) (leave func(), err error) {
	if err = dst.Check(d); err != nil {
		return nil, err
	}
	first, second := d, from
	if from.entry.ordinal < d.entry.ordinal {
		first, second = from, d
	}
	leaveFirst, err := first.life.Enter(ctx, first)
	if err != nil {
		return nil, err
	}
	leaveSecond, err := second.life.Enter(ctx, second)
	if err != nil {
		leaveFirst()
		return nil, err
	}
	return func() { leaveSecond(); leaveFirst() }, nil
}

// link lets the two cards reach each other: once for the pair, and for each
// block of mapped physical memory, which the pair's link does not open.
func (d *device) link(from *device, dst, src *block) error {
	d.linkMu.Lock()
	defer d.linkMu.Unlock()
	if _, done := d.links[from.Epoch()]; !done {
		if err := d.linkPair(from); err != nil {
			return err
		}
		d.links[from.Epoch()] = struct{}{}
	}
	if err := from.open(src, d.entry.device); err != nil {
		return err
	}
	return d.open(dst, from.entry.device)
}

// linkPair enables access in both directions.
func (d *device) linkPair(from *device) error {
	for _, way := range [][2]*device{{d, from}, {from, d}} {
		one, other := way[0], way[1]
		can, err := d.api.canAccessPeer(one.entry.device, other.entry.device)
		if err != nil {
			return err
		}
		if !can {
			return fmt.Errorf("%s does not reach %s: %w", one.info.Name, other.info.Name, devices.ErrUnsupported)
		}
		err = one.on(func() error { return d.api.enablePeer(other.context) })
		switch codeOf(err) {
		case codePeerEnabled:
		case codePeerUnsupported, codeTooManyPeers:
			return fmt.Errorf("%w: %w", devices.ErrUnsupported, err)
		default:
			if err != nil {
				return err
			}
		}
	}
	d.log.Info("reaches a peer", zap.String("peer", string(from.info.Name)))
	return nil
}

// open lets a peer touch a block, if that needs to be said.
func (d *device) open(b *block, peer cuDevice) error {
	if b.virtual == nil {
		return nil
	}
	b.virtual.mu.Lock()
	defer b.virtual.mu.Unlock()
	if b.virtual.peers[peer] {
		return nil
	}
	err := d.on(func() error { return d.api.setAccess(b.virtual.addr, b.virtual.size, peer) })
	if err != nil {
		return err
	}
	if b.virtual.peers == nil {
		b.virtual.peers = map[cuDevice]bool{}
	}
	b.virtual.peers[peer] = true
	return nil
}

// warn logs what can't be returned.
func (d *device) warn(what string, err error) {
	if err != nil {
		d.log.Warn(what, zap.Error(err))
	}
}
