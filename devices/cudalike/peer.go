package cudalike

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// peerer implements devices.PeerCopier.
type peerer struct{ d *device }

var _ devices.PeerCopier = peerer{}

// opened is implemented by every device of this package, whatever its abilities.
type opened interface{ core() *device }

func (d *device) core() *device { return d }

// CopyPeer copies bytes between two devices of one vendor, if they can access each other.
// If they can't, a runtime would stage the bytes through the host silently.
func (p peerer) CopyPeer(ctx context.Context, dst, src devices.Span) error {
	if src.Mem == nil || dst.Mem == nil {
		return fmt.Errorf("span without memory: %w", devices.ErrRange)
	}
	other, ok := src.Mem.Device().(opened)
	if !ok || other.core().t != p.d.t || other.core().binding.ordinal == p.d.binding.ordinal {
		return fmt.Errorf("copy from %s to %s: %w",
			src.Mem.Device().Info().Name, p.d.Info().Name, devices.ErrUnsupported)
	}
	from := other.core()
	leave, err := p.d.BeginPeer(ctx, from.Card, dst, src)
	if err != nil {
		return err
	}
	defer leave()
	worker, mate := p.d, from
	if p.d.t.peer.onSource {
		worker, mate = from, p.d
	}
	err = worker.Reach(mate.Card, p.d.t.peer.mutual, func() (bool, error) { return worker.join(mate) })
	if err != nil {
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

// join enables copies by d from and to other, if the runtime supports that: from both sides
// if the runtime requires it.
func (d *device) join(other *device) (bool, error) {
	ways := [][2]*device{{d, other}}
	if d.t.peer.mutual {
		ways = append(ways, [2]*device{other, d})
	}
	for _, way := range ways {
		if can, err := way[0].enable(way[1]); err != nil || !can {
			return false, err
		}
	}
	return true, nil
}

// enable reports whether d can access other and, if the runtime requires it, enables the
// access.
func (d *device) enable(other *device) (can bool, err error) {
	err = d.On(func() (err error) {
		can, err = d.t.peer.can(d.binding, other.binding)
		return err
	})
	if err == nil && can && d.t.peer.enable != nil {
		err = d.On(func() error {
			return tolerate(d.t.peer.enable(other.binding), d.t.codes.peerEnabled)
		})
	}
	if err != nil {
		return false, fmt.Errorf("access from %s to %s: %w", d.Info().Name, other.Info().Name, err)
	}
	return can, nil
}
