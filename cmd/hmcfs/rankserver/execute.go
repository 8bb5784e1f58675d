package rankserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// start starts a call. Messages start before it returns, so that they keep their order.
func (s *server) start(ctx context.Context, id uint64, v Verb, c *Call) {
	switch {
	case v == VerbSend || v == VerbRecv:
		r, err := s.message(ctx, v, c)
		if err != nil {
			s.finish(id, answer{file: -1}, err)
			return
		}
		s.calls.Go(func() { s.finish(id, answer{file: -1}, r.Finish(ctx)) })
	case v == VerbAllocShared || v == VerbOpenWindow || v == VerbCloseWindow || v >= VerbAllReduce:
		s.sequence <- func() {
			a, err := s.together(ctx, v, c)
			s.finish(id, a, err)
		}
	default:
		s.calls.Go(func() {
			a, err := s.alone(ctx, v, c)
			s.finish(id, a, err)
		})
	}
}

// message starts a send or a receive.
func (s *server) message(ctx context.Context, v Verb, c *Call) (*domain.Request, error) {
	at := c.Source
	if v == VerbRecv {
		at = c.Result
	}
	view, err := s.memory.view(c.Type, at)
	if err != nil {
		return nil, err
	}
	if v == VerbRecv {
		return s.job.World().Comm().Irecv(ctx, view, domain.Rank(c.Peer), wire.Tag(c.Number))
	}
	return s.job.World().Comm().Isend(ctx, view, domain.Rank(c.Peer), wire.Tag(c.Number))
}

// alone executes a call that no other rank has to make at the same time.
func (s *server) alone(ctx context.Context, v Verb, c *Call) (answer, error) {
	none := answer{file: -1}
	switch v {
	case VerbAlloc:
		return s.allocate(ctx, c.Number)
	case VerbFree:
		return none, s.memory.free(ctx, c.Source.Memory)
	case VerbPut:
		return none, s.move(ctx, c, c.Source, (*job.Windows).Put)
	case VerbGet:
		return none, s.move(ctx, c, c.Result, (*job.Windows).Get)
	case VerbTag:
		return none, s.job.Communicator().SendTag(ctx, wire.Rank(c.Peer), wire.Tag(c.Number))
	case VerbRecvTag:
		tag, err := s.job.Communicator().RecvTag(ctx, wire.Rank(c.Peer))
		return answer{uint64(tag), -1}, err
	case VerbFlush:
		return none, s.flush(ctx)
	default:
		return none, fmt.Errorf("%w: unknown verb %d", frames.ErrFrame, v)
	}
}

// move copies between memory and the window of a rank.
func (s *server) move(ctx context.Context, c *Call, at Range, to func(w *job.Windows, ctx context.Context, rank int, off uint64, p []byte) error) error {
	s.mu.Lock()
	w := s.windows
	s.mu.Unlock()
	if w == nil {
		return fmt.Errorf("there is no window; all ranks open it first: %w", job.ErrWindows)
	}
	view, err := s.memory.view(c.Type, at)
	if err != nil || view.Count() == 0 {
		return err
	}
	b := view.Buffer()
	if err = b.Hold(); err != nil {
		return err
	}
	defer b.Drop()
	return to(w, ctx, int(c.Peer), c.Number, b.Host(view.Offset(), view.Size()))
}

// flush waits until all ranks have received what was sent to them.
func (s *server) flush(ctx context.Context) error {
	all := s.job.World()
	var errs []error
	for r := range all.Size() {
		if r != all.Rank() {
			errs = append(errs, all.Comm().Flush(ctx, domain.Rank(r)))
		}
	}
	return errors.Join(errs...)
}

// together executes a call in which all ranks take part.
func (s *server) together(ctx context.Context, v Verb, c *Call) (answer, error) {
	switch v {
	case VerbAllocShared:
		return s.allocateShared(ctx, c.Number)
	case VerbOpenWindow:
		return s.openWindow(ctx, c.Number)
	case VerbCloseWindow:
		return answer{file: -1}, s.closeWindow(ctx)
	default:
		return answer{file: -1}, s.collect(ctx, v, c)
	}
}

func (s *server) openWindow(ctx context.Context, n uint64) (answer, error) {
	w, err := s.job.World().AllocWindows(ctx, devices.Size(n))
	if err != nil {
		return answer{file: -1}, err
	}
	s.mu.Lock()
	s.windows = w
	s.mu.Unlock()
	return s.memory.add(&piece{buffer: w.Buffer(), window: true})
}

func (s *server) closeWindow(ctx context.Context) error {
	s.mu.Lock()
	w := s.windows
	s.mu.Unlock()
	if w == nil {
		return fmt.Errorf("there is no window: %w", job.ErrWindows)
	}
	if err := w.Release(ctx); err != nil {
		return err
	}
	s.memory.forget(w.Buffer())
	s.mu.Lock()
	s.windows = nil
	s.mu.Unlock()
	return nil
}

// kindOf returns the collective of a verb, or 0.
func kindOf(v Verb) plan.Kind {
	return map[Verb]plan.Kind{
		VerbAllReduce: plan.AllReduce, VerbReduceScatter: plan.ReduceScatter, VerbAllGather: plan.AllGather, VerbBroadcast: plan.Broadcast,
		VerbReduce: plan.Reduce, VerbAllToAll: plan.AllToAll, VerbBarrier: plan.Barrier,
	}[v]
}

// collect executes a collective.
func (s *server) collect(ctx context.Context, v Verb, c *Call) error {
	kind := kindOf(v)
	if !kind.Known() {
		return fmt.Errorf("%w: unknown verb %d", frames.ErrFrame, v)
	}
	source, err := s.memory.view(c.Type, c.Source)
	if err != nil {
		return err
	}
	result, err := s.memory.view(c.Type, c.Result)
	if err != nil {
		return err
	}
	call := &collective.Call{Kind: kind, Source: source, Result: result, Op: c.Op, Root: plan.Rank(c.Peer)}
	if err = s.group.Do(ctx, call); err != nil && err == ctx.Err() { //nolint:errorlint // other errors say which ranks are missing
		err = fmt.Errorf("%v: not all ranks made this call in time: %w", kind, err)
	}
	return err
}
