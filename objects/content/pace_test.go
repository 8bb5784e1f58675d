package content

import (
	"testing"
	"time"
)

// TestPaceFollowsTheDevice has pieces grow on a card that moves 2 TB/s, so that
// what a call costs does not show, and shrink where they would hold up an
// interrupt.
func TestPaceFollowsTheDevice(t *testing.T) {
	p := pace{want: pieceTime}
	moves := func(times int, bytesPerSecond float64) (longest time.Duration) {
		for range times {
			n := p.piece()
			spent := time.Duration(float64(n) / bytesPerSecond * 1e9)
			p.took(n, spent)
			longest = max(longest, spent)
		}
		return longest
	}
	if p.piece() != MaxPiece {
		t.Fatalf("begins with %d bytes", p.piece())
	}
	moves(6, 2e12)
	if p.piece() != longPiece {
		t.Errorf("a fast card gets pieces of %d bytes", p.piece())
	}
	moves(10, 50e9)
	if n := p.piece(); n < 128<<20 || n > 1<<30 {
		t.Errorf("PCI Express gets pieces of %d bytes", n)
	}
	moves(10, 2e9)
	if longest := moves(1, 2e9); longest > 2*pieceTime {
		t.Errorf("a slow card's pieces take %v", longest)
	}
	before := p.piece()
	p.took(before-1, 0)
	if p.piece() != before {
		t.Error("a piece that was short of what was asked has changed the next")
	}
	moves(20, 1e6)
	if p.piece() != MaxPiece {
		t.Errorf("the slowest get %d bytes", p.piece())
	}
}
