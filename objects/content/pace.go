package content

import (
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

const (
	// MaxPiece is the largest piece, in bytes, that one device call moves before the
	// device's speed is known: a few milliseconds on any device.
	MaxPiece = 16 << 20
	// longPiece is the largest piece of all, in bytes.
	longPiece = 1 << 30
	// pieceTime is the duration that a piece should take, so that an interrupted copy
	// ends soon.
	pieceTime = 8 * time.Millisecond
	// farTime is the same for bytes of another machine, where each piece costs a round
	// trip.
	farTime = 100 * time.Millisecond
)

// pace chooses how many bytes are moved between two looks at the context. The cost of a
// call does not depend on its length: a card that copies 16 MiB internally in 8 us waits
// as long for the next call. So pieces grow while they take less than pieceTime, and
// shrink when they take longer. The zero value begins with MaxPiece. It may be used from
// any goroutine.
type pace struct{ length atomic.Uint64 }

// piece returns the length of the next piece, in bytes.
func (p *pace) piece() uint64 { return max(p.length.Load(), MaxPiece) }

// took adapts to a piece of n bytes that took spent and should have taken want. A piece
// that was shorter than planned changes nothing.
func (p *pace) took(n uint64, spent, want time.Duration) {
	now := p.piece()
	switch {
	case n < now:
	case spent < want/2:
		p.length.Store(min(2*now, longPiece))
	case spent > 2*want:
		p.length.Store(max(now/2, MaxPiece))
	}
}

// paces are the paces of copies to one tier: within it, from another device, and from
// another machine.
type paces struct{ inside, across, remote pace }

// pacing is a pace with the duration that a piece should take.
type pacing struct {
	*pace

	want time.Duration
}

func (p pacing) took(n uint64, spent time.Duration) { p.pace.took(n, spent, p.want) }

// of returns the pace of copies from src to the tier of that name.
func (p *paces) of(name devices.Name, src transport.Span) pacing {
	switch {
	case src.IsRemote():
		return pacing{&p.remote, farTime}
	case src.Device() == name:
		return pacing{&p.inside, pieceTime}
	}
	return pacing{&p.across, pieceTime}
}
