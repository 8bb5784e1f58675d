package content

import (
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

const (
	// maxPiece is the most that one device call moves before it is known how
	// fast it is, in bytes: a few milliseconds on any device.
	MaxPiece = 16 << 20
	// longPiece is the most that one device call moves, in bytes.
	longPiece = 1 << 30
	// pieceTime is the time that a piece should take, so that an interrupted copy
	// ends soon.
	pieceTime = 8 * time.Millisecond
	// farTime is the same for bytes of another machine. Each piece is asked for,
	// and nothing moves until the answer begins.
	farTime = 100 * time.Millisecond
)

// pace sizes what is moved between two looks at the context. A call costs the
// same however much it moves: a card that copies 16 MiB inside itself in 8 us
// waits as long for the next. So pieces grow while they take less than
// pieceTime, and get shorter again when they take longer. The zero value begins
// with maxPiece. It may be used from any goroutine.
type pace struct{ length atomic.Uint64 }

// piece returns the length of the next piece, in bytes.
func (p *pace) piece() uint64 { return max(p.length.Load(), MaxPiece) }

// took learns from a piece of n bytes that should have taken as long as want.
// Shorter ones than were asked for say nothing of longer ones.
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

// paces are those of copies to one tier: inside of it, from elsewhere, and from
// other machines.
type paces struct{ inside, across, remote pace }

// pacing is a pace, and how long a piece should take.
type pacing struct {
	*pace

	want time.Duration
}

func (p pacing) took(n uint64, spent time.Duration) { p.pace.took(n, spent, p.want) }

// of is the pace of copies from a span to the tier of that name.
func (p *paces) of(name devices.Name, src transport.Span) pacing {
	switch {
	case src.IsRemote():
		return pacing{&p.remote, farTime}
	case src.Device() == name:
		return pacing{&p.inside, pieceTime}
	}
	return pacing{&p.across, pieceTime}
}
