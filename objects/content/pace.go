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
// as long for the next call. So pieces grow while they take less than wanted, and shrink
// when they take longer, beginning with MaxPiece. It may be used from any goroutine.
type pace struct {
	// want is the duration that a piece should take.
	want   time.Duration
	length atomic.Uint64
}

// piece returns the length of the next piece, in bytes.
func (p *pace) piece() uint64 { return max(p.length.Load(), MaxPiece) }

// took adapts to a piece of n bytes that took spent. A piece that was shorter than planned
// changes nothing.
func (p *pace) took(n uint64, spent time.Duration) {
	now := p.piece()
	switch {
	case n < now:
	case spent < p.want/2:
		p.length.Store(min(2*now, longPiece))
	case spent > 2*p.want:
		p.length.Store(max(now/2, MaxPiece))
	}
}

// paceOf returns the pace of copies from src.
func (t *Tier) paceOf(src transport.Span) *pace {
	switch {
	case src.IsRemote():
		return &t.remote
	case src.Device() == devices.Name(t.Name):
		return &t.inside
	}
	return &t.across
}
