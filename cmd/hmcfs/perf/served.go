package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// servedRunner is a runner that this process serves.
type servedRunner struct {
	*station

	memory *memory
	// bounce is the host memory for OpBounce.
	bounce *memory
	domain *domain.Comm
}

// serve executes the requests of one runner, until it disconnects. last reports that the
// runner has finished, and not just one of several sessions.
func (s *station) serve(ctx context.Context) (last bool, err error) {
	g := &servedRunner{station: s}
	defer func() { err = errors.Join(err, g.leave(context.WithoutCancel(ctx))) }()
	for ended := false; ; {
		p, err := s.comm.RecvMessage(ctx, runnerRank)
		if err != nil {
			if ended && errors.Is(err, control.ErrDisconnected) {
				return last, nil
			}
			return false, err
		}
		var a ask
		if err = json.Unmarshal(p, &a); err != nil {
			return false, s.drop(fmt.Errorf("message of %s: %w", runnerRank, err))
		}
		if a.Do == askEnd {
			ended, last = true, a.Last
		}
		r := reply{Differs: -1}
		if err = g.do(ctx, a, &r); err != nil {
			r.Error = err.Error()
		}
		if p, err = json.Marshal(r); err != nil {
			return false, s.drop(err)
		}
		if err = s.comm.SendMessage(ctx, runnerRank, p); err != nil {
			return false, err
		}
	}
}

// leave frees the resources of the runner.
func (g *servedRunner) leave(ctx context.Context) error {
	m, b, d := g.memory, g.bounce, g.domain
	g.memory, g.bounce, g.domain = nil, nil, nil
	var errs []error
	if d != nil {
		errs = append(errs, d.Destroy()) //nolint:contextcheck // cleanup must not depend on the context
	}
	return errors.Join(append(errs, m.free(ctx), b.free(ctx))...)
}

// drop ends the session of a runner that can't be served any more, and returns the cause.
func (s *station) drop(cause error) error {
	if err := s.comm.Disconnect(runnerRank); err != nil && !errors.Is(err, comm.ErrNotConnected) {
		return errors.Join(cause, err)
	}
	return cause
}

// do executes one request.
func (g *servedRunner) do(ctx context.Context, a ask, r *reply) (err error) {
	switch a.Do {
	case askEnd:
		return nil
	case askEcho:
		return g.echo(ctx, a.Count)
	case askOpen:
		// The previous memory is freed first: there may not be room for both.
		if err = g.leave(ctx); err == nil {
			r.Descriptor, err = g.provide(ctx, &g.memory, a.Memory, a.Size, wire.Readable|wire.Writable)
		}
		return err
	}
	if g.memory == nil {
		return errors.New("no memory is open")
	}
	b := g.memory.buffer
	switch a.Do {
	case askFill:
		return write(ctx, b, a.Seed, a.Size)
	case askVerify:
		r.Differs, err = verify(ctx, b, a.Seed, a.Size)
		return err
	case askBounce:
		if g.bounce != nil {
			return errors.New("bounce memory exists already")
		}
		r.Descriptor, err = g.provide(ctx, &g.bounce, Host, a.Size, wire.Writable)
		return err
	case askStore:
		return g.store(ctx, a.Size, a.Count)
	case askJoin:
		g.domain, err = g.join(ctx)
		return err
	}
	if g.domain == nil {
		return errors.New("there is no domain")
	}
	t, err := newTalk(g.domain, b, a.Size)
	if err != nil {
		return err
	}
	switch a.Do {
	case askSend:
		return t.send(ctx, runnerInDomain, a.Count)
	case askReceive:
		return t.receive(ctx, runnerInDomain, a.Count)
	case askPong:
		return t.pong(ctx, runnerInDomain, a.Count)
	}
	return fmt.Errorf("%q is not understood", a.Do)
}

// provide allocates memory, which g keeps at a place, and returns its descriptor.
func (g *servedRunner) provide(ctx context.Context, place **memory, name devices.Name, n devices.Size, may wire.Rights) ([]byte, error) {
	m, err := g.take(ctx, name, n)
	if err != nil {
		return nil, err
	}
	*place = m
	d, err := g.comm.Share(ctx, runnerRank, m.buffer, may)
	if err != nil {
		return nil, err
	}
	return d.Append(nil), nil
}

// echo sends tags back.
func (g *servedRunner) echo(ctx context.Context, count int) error {
	for range count {
		tag, err := g.comm.RecvTag(ctx, runnerRank)
		if err != nil {
			return err
		}
		if err := g.comm.SendTag(ctx, runnerRank, tag); err != nil {
			return err
		}
	}
	return nil
}
