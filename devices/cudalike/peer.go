package cudalike

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// peerer is the ability to copy straight between two devices.
type peerer struct{ d *device }

var _ devices.PeerCopier = peerer{}

// peers has what a device knows of the others of its runtime, by ordinal.
// table.peering guards it.
type peers struct {
	// reach says that the device may copy from and to another; one that was
	// not asked for yet is missing.
	reach map[int]bool
	// enabled are those that the runtime was told of.
	enabled map[int]bool
}

// opened is every device of this package, whatever it can do besides.
type opened interface{ core() *device }

func (d *device) core() *device { return d }

// CopyPeer moves bytes between two devices of one vendor, if they reach each
// other: a runtime stages the bytes through the host by itself and silently
// where they don't, and so nobody would see it.
func (p peerer) CopyPeer(ctx context.Context, dst, src devices.Span) error {
	if src.Mem == nil || dst.Mem == nil {
		return fmt.Errorf("span without memory: %w", devices.ErrRange)
	}
	other, ok := src.Mem.Device().(opened)
	if !ok || other.core().t != p.d.t || other.core().binding.ordinal == p.d.binding.ordinal {
		return fmt.Errorf("copy from %s to %s: %w",
			src.Mem.Device().Info().Name, p.d.info.Name, devices.ErrUnsupported)
	}
	from := other.core()
	leave, err := beginPeer(ctx, p.d, from, dst, src)
	if err != nil {
		return err
	}
	defer leave()
	worker, mate := p.d, from
	if p.d.t.peer.onSource {
		worker, mate = from, p.d
	}
	if err := worker.reaches(mate); err != nil {
		return err
	}
	to, at := place(dst), place(src)
	return worker.withStream(func(s stream) error {
		return moves.Pieces(ctx, src.Len, devicePiece, func(off, n devices.Size) error {
			return worker.work(s, func() error {
				return p.d.t.peer.copy(to.plus(off), p.d.binding, at.plus(off).at, from.binding, uint64(n), s)
			})
		})
	})
}

// beginPeer checks both spans and begins the copy on both devices, always in
// the same order: the two may copy to each other while both are closed.
func beginPeer(ctx context.Context, to, from *device, dst, src devices.Span) (leave func(), err error) {
	if dst.Len != src.Len {
		return nil, fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, to.info.Name, devices.ErrRange)
	}
	enter := func(d *device, s devices.Span) (func(), error) { return d.life.Begin(ctx, d.self, s, int(s.Len)) }
	first, second := to, from
	firstSpan, secondSpan := dst, src
	if from.serial < to.serial {
		first, second, firstSpan, secondSpan = from, to, src, dst
	}
	leaveFirst, err := enter(first, firstSpan)
	if err != nil {
		return nil, err
	}
	leaveSecond, err := enter(second, secondSpan)
	if err != nil {
		leaveFirst()
		return nil, err
	}
	return func() {
		leaveSecond()
		leaveFirst()
	}, nil
}

// reaches returns nil if the device may copy from and to the other. Access is
// asked for and enabled once.
func (d *device) reaches(other *device) error {
	d.t.peering.Lock()
	defer d.t.peering.Unlock()
	can, known := d.peers.reach[other.binding.ordinal]
	if !known {
		err := d.on(func() (err error) {
			can, err = d.t.peer.can(d.binding, other.binding)
			return err
		})
		if err == nil && can {
			err = d.enable(other)
		}
		if err == nil && can && d.t.peer.mutual {
			err = other.enable(d)
		}
		if err != nil {
			return fmt.Errorf("access from %s to %s: %w", d.info.Name, other.info.Name, err)
		}
		d.peers.reach[other.binding.ordinal] = can
	}
	if !can {
		return fmt.Errorf("%s does not reach %s: %w", d.info.Name, other.info.Name, devices.ErrUnsupported)
	}
	return nil
}

// enable lets the device reach the other, where the runtime wants to be told.
func (d *device) enable(other *device) error {
	ordinal := other.binding.ordinal
	if d.t.peer.enable == nil || d.peers.enabled[ordinal] {
		return nil
	}
	err := d.on(func() error {
		return tolerate(d.t.peer.enable(other.binding), d.t.codes.peerEnabled)
	})
	d.peers.enabled[ordinal] = err == nil
	return err
}
