package fabrictest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// patience bounds the wait for events that must happen, however busy the machine is.
const patience = 60 * time.Second

// World holds the ranks of a fabric, all in this process.
type World struct {
	Ranks []fabric.Fabric
	// Alloc allocates shareable memory of a rank, which is closed at the end.
	Alloc func(t testing.TB, rank int, n devices.Size) *region.Buffer
	// Allocates reports whether a message may allocate memory.
	Allocates bool
	// Cut breaks the link between two ranks, both of which stay alive. Nil if that is not
	// possible.
	Cut func(t testing.TB, a, b int)
	// Kill ends a rank without notice. Nil if that is not possible.
	Kill func(t testing.TB, rank int)
}

// Open creates a world of n ranks, which ends with the test.
type Open func(t testing.TB, n int) *World

// each runs fn for every rank at the same time.
func (w *World) each(t testing.TB, fn func(f fabric.Fabric) error) {
	t.Helper()
	var all sync.WaitGroup
	for _, f := range w.Ranks {
		all.Go(func() {
			if err := fn(f); err != nil {
				t.Errorf("rank %d: %v", f.Rank(), err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func within(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

func shortly(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, 50*time.Millisecond)
}

// send sends all of a message.
func send(ctx context.Context, f fabric.Fabric, to plan.Rank, head, body []byte) error {
	for len(head)+len(body) > 0 {
		n, err := f.Link(to).TrySend(head, body)
		if err != nil {
			return err
		}
		k := min(n, len(head))
		head, body = head[k:], body[n-k:]
		if n == 0 {
			if err = f.Park(ctx, []fabric.Want{{Peer: to, Send: true}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive fills p.
func receive(ctx context.Context, f fabric.Fabric, from plan.Rank, p []byte) error {
	for len(p) > 0 {
		n, err := f.Link(from).TryReceive(p)
		if err != nil {
			return err
		}
		p = p[n:]
		if n == 0 {
			if err = f.Park(ctx, []fabric.Want{{Peer: from, Receive: true}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lost describes what is wrong with an error that must be that of a link to a rank.
func lost(err error, peer plan.Rank) error {
	var l *fabric.LinkError
	if !errors.Is(err, fabric.ErrLink) || !errors.As(err, &l) || l.Peer != peer {
		return errors.Join(errors.New("this must be a LinkError of the peer"), err)
	}
	return nil
}
