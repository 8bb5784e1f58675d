package collective

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

type guard struct {
	call uint32
	base uint64
}

func (g *Group) guarded(ctx context.Context, r *running) error {
	if !r.resumed {
		g.guard.call++
	}
	return g.attempt(ctx, r)
}

func (g *Group) stamp(b *[headSize]byte, nth uint16, size uint64) {
	binary.LittleEndian.PutUint32(b[0:], g.guard.call)
	binary.LittleEndian.PutUint16(b[4:], nth)
	binary.LittleEndian.PutUint64(b[8:], size)
}

func (g *Group) verifyHead(b *[headSize]byte, peer plan.Rank, nth uint16, size uint64) error {
	var want [headSize]byte
	g.stamp(&want, nth, size)
	if *b != want {
		return fmt.Errorf("%w: rank %d is elsewhere", ErrInconsistent, peer)
	}
	return nil
}

func (g *Group) park(ctx context.Context, want []fabric.Want, step int, moved bool) error {
	if err := g.fabric.Park(ctx, want); err != nil {
		return err
	}
	if g.closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

func (g *Group) await(ctx context.Context, s fabric.Signals, of plan.Rank, value uint64, step int) error {
	err := s.Await(ctx, of, value)
	if g.closed.Load() {
		return ErrClosed
	}
	return err
}
