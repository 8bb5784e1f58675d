package collective

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// stagePiece is how many bytes a device copies at a time: what follows can use
// them while the next ones are on their way.
const stagePiece = 1 << 20

// stager moves bytes between staged buffers and their memory, while the loop
// goes on.
type stager struct {
	// views are the memory, by plan.Buffer.
	views [4]domain.View
	// loads and stores are the steps of now, and how many bytes of them are
	// being moved.
	loads, stores mover
	results       chan staged
}

// mover is one direction: one piece is on its way at a time.
type mover struct {
	at   int
	away bool
}

// staged is a piece that was moved.
type staged struct {
	m   *mover
	i   int
	n   uint64
	err error
}

// busy is how many pieces are on their way.
func (s *stager) busy() (n int) {
	for _, m := range []*mover{&s.loads, &s.stores} {
		if m.away {
			n++
		}
	}
	return n
}

// stage takes what the stager has moved, and gives it what comes next.
func (l *loop) stage(ctx context.Context, p *phase) error {
	if len(p.loads) == 0 && len(p.stores) == 0 {
		return nil
	}
	s := &l.stager
	for s.busy() > 0 {
		select {
		case r := <-s.results:
			if err := l.landed(r); err != nil {
				return err
			}
			continue
		default:
		}
		break
	}
	l.launch(ctx, &s.loads, p.loads)
	l.launch(ctx, &s.stores, p.stores)
	return nil
}

// landed notes a piece that was moved.
func (l *loop) landed(r staged) error {
	r.m.away = false
	if r.err != nil {
		return r.err
	}
	l.moved = true
	l.count.staged += r.n
	l.done[r.i] += r.n
	if l.finish(r.i) {
		r.m.at++
	}
	return nil
}

// launch begins to move the next piece of some steps.
func (l *loop) launch(ctx context.Context, m *mover, steps []int) {
	if m.away || m.at == len(steps) {
		return
	}
	i := steps[m.at]
	from, to := l.done[i], l.limit(i)
	if to <= from {
		return
	}
	n := min(to-from, stagePiece)
	st := &l.prog.steps[i]
	if to < st.block.len && n < stagePiece {
		// A device copies few large pieces faster than many small ones.
		return
	}
	m.away = true
	v, host := l.stager.views[st.block.buffer], l.part(st.block, from, n)
	isLoad, off := st.action == load, devices.Offset(st.block.off+from)
	results, f := l.stager.results, l.fabric
	go func() {
		var err error
		if isLoad {
			err = readView(ctx, v, off, host)
		} else {
			err = writeView(ctx, v, off, host)
		}
		results <- staged{m: m, i: i, n: n, err: err}
		f.Interrupt()
	}()
}

// settle waits until no piece is on its way.
func (l *loop) settle() {
	for l.stager.busy() > 0 {
		r := <-l.stager.results
		r.m.away = false
	}
}

// readView copies the bytes of a view from off on, whatever memory they are.
func readView(ctx context.Context, v domain.View, off devices.Offset, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := v.Buffer().Load(ctx, transport.HostSpan(p), v.Offset()+off); err != nil {
		return fmt.Errorf("read %d bytes of a source: %w", len(p), err)
	}
	return nil
}

// writeView sets the bytes of a view from off on.
func writeView(ctx context.Context, v domain.View, off devices.Offset, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := v.Buffer().Store(ctx, v.Offset()+off, transport.HostSpan(p)); err != nil {
		return fmt.Errorf("write %d bytes of a result: %w", len(p), err)
	}
	return nil
}

// stagingOf says which buffers of a task are staged.
func stagingOf(t *plan.Task, source, result bool) staging {
	st := staging{}
	if !source && !result {
		return st
	}
	if t.InPlace {
		one := t.Place(0, plan.Block{Buffer: plan.Source}).Buffer
		return staging{loads: one, stores: one}
	}
	if source {
		st.loads = plan.Source
	}
	if result {
		st.stores = plan.Result
	}
	return st
}
