package fabric

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// spin is the time that a waiting rank polls before it sleeps.
const spin = 50 * time.Microsecond

// Local makes the fabrics of n ranks that are goroutines of one process. All of them can
// access all host memory.
func Local(n int) ([]Fabric, error) {
	if n < 1 || n > plan.MaxRanks {
		return nil, fmt.Errorf("fabric of %d ranks: must have 1 to %d", n, plan.MaxRanks)
	}
	out := make([]Fabric, n)
	for r, l := range newHub(n).all {
		out[r] = l
	}
	return out, nil
}

// local is one rank of a fabric made by Local.
type local struct {
	*node
	hub   *hub
	links []*ringLink
	// parent is the fabric that Duplicate was called on; nil for the first one.
	parent *local
	copies copies
}

func newLocal(h *hub, me plan.Rank) *local {
	n := len(h.states)
	l := &local{node: newNode(me, h.states), hub: h, links: make([]*ringLink, n)}
	l.bells = l
	if n <= runtime.GOMAXPROCS(0) {
		l.spin = spin
	}
	for r := range n {
		if r != int(me) {
			l.links[r] = &ringLink{node: l.node, peer: plan.Rank(r)}
		}
	}
	l.reset()
	return l
}

// reset makes all links anew.
//
// Preconditions: no other rank uses them.
func (l *local) reset() {
	n := len(l.links)
	for r, link := range l.links {
		if link == nil {
			continue
		}
		out := l.hub.rings[int(l.me)*n+r]
		out.reset()
		link.out, link.in = outlet{pipe: out}, inlet{pipe: l.hub.rings[r*n+int(l.me)]}
		link.lost.Store(nil)
		l.gone[r].Store(nil)
	}
}

// Nodes reports that all ranks are on one node.
func (l *local) Nodes() []int { return make([]int, len(l.links)) }

// Mapped returns true: all ranks can access all host memory.
func (l *local) Mapped() bool { return true }

// Link returns the stream to a peer, nil for the rank itself.
func (l *local) Link(peer plan.Rank) Link {
	l.hub.wire()
	if peer == l.me {
		return nil
	}
	return l.links[peer]
}

// Signals returns the counters of all ranks.
func (l *local) Signals() Signals { return l.node }

// Park waits until one of the links can make progress.
func (l *local) Park(ctx context.Context, want []Want) error {
	l.hub.wire()
	return l.park(ctx, l.links, want)
}

// Share exchanges buffers with the other ranks.
func (l *local) Share(ctx context.Context, b *region.Buffer) (Shared, error) {
	mine := offer{buffer: b}
	if err := b.Hold(); err != nil {
		mine.err = err
	} else if mine.bytes = b.Host(0, b.Size()); mine.bytes == nil {
		mine.err = fmt.Errorf("host memory required, not memory of %s: %w", b.Device(), ErrUnmapped)
		b.Drop()
	}
	all, err := l.hub.join(ctx, l.me, mine)
	if err != nil {
		if mine.err == nil {
			b.Drop()
		}
		return nil, err
	}
	s := &sharedBuffers{}
	for _, o := range all {
		s.bytes, s.held = append(s.bytes, o.bytes), append(s.held, o.buffer)
	}
	return s, nil
}

// Reform waits for the other ranks, and makes all links anew.
func (l *local) Reform(ctx context.Context) error {
	for r, link := range l.links {
		if link != nil {
			l.hub.all[r].lose(l.me, errAnew)
			l.lose(plan.Rank(r), errAnew)
		}
	}
	_, err := l.hub.join(ctx, l.me, offer{purpose: forReform})
	return err
}

// Duplicate waits for the other ranks, and returns this rank's part of the copy.
func (l *local) Duplicate(ctx context.Context) (Fabric, error) {
	all, err := l.hub.join(ctx, l.me, offer{purpose: forDuplicate})
	if err != nil {
		return nil, err
	}
	f := all[l.me].made
	f.parent = l
	if err = l.copies.add(f); err != nil {
		return nil, err
	}
	return f, nil
}

// Close ends all links, and closes all copies.
func (l *local) Close() error {
	err := l.copies.close()
	if l.parent != nil {
		l.parent.copies.remove(l)
	}
	l.hub.leave(l.me)
	for r, link := range l.links {
		if link != nil {
			link.lost.CompareAndSwap(nil, &LinkError{plan.Rank(r), ErrClosed})
			link.end()
			l.hub.all[r].lose(l.me, errEnded)
		}
	}
	return err
}

func (l *local) ring(of plan.Rank, _ uint32) { signal(l.hub.bells[of]) }

func (l *local) sleep(ctx context.Context, _ uint32) error {
	select {
	case <-l.hub.bells[l.me]:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
