package cluster

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// stagesAhead is the number of stages of one move that are in progress at once.
const stagesAhead = 3

func oneStage() uint64 { return uint64(stageSize) }

// staging is a large move between a file of another node and memory of ours that the node
// can't open, while it can open other memory of ours. The bytes pass through the latter, which
// costs one more copy here, but no socket.
type staging struct {
	s      *session
	handle uint64
	span   transport.Span
	off    uint64
}

// part returns the n bytes of the span at an offset.
func (m *staging) part(at, n uint64) (transport.Span, error) {
	return m.span.Part(devices.Offset(at), devices.Size(n))
}

// ask makes the owner move n bytes at an offset of the span from or to a stage.
func (m *staging) ask(ctx context.Context, f *File, method rpc.Method, b *slot, at, n uint64) (proto.MoveAnswer, error) {
	return f.piece(ctx, m.s, method, &proto.MoveAsk{Handle: m.handle, Off: m.off + at, N: n, Memory: b.memory})
}

// fetchStaged fills the span, several stages at a time, independently of each other.
func fetchStaged(ctx context.Context, f *File, m staging) (string, error) {
	var path atomic.Pointer[string]
	n, err := inPieces(ctx, uint64(m.span.Len()), stagesAhead, oneStage, func(ctx context.Context, at, n uint64) (uint64, error) {
		dst, err := m.part(at, n)
		if err != nil {
			return 0, err
		}
		b, err := m.s.stages.blank(ctx, int(n))
		if err != nil {
			return 0, err
		}
		out, err := m.ask(ctx, f, proto.MethodRead, b, at, n)
		if err == nil && out.N == n {
			path.Store(&out.Path)
			_, failure := f.n.c.opts.Engine.Copy(ctx, dst, transport.HostSpan(b.bytes(int(n))))
			b.done(nil)
			return out.N, failure
		}
		b.done(err)
		return out.N, err
	})
	if err == nil && n < uint64(m.span.Len()) {
		err = short(proto.MethodRead, n, uint64(m.span.Len()))
	}
	return text(&path), err
}

// text returns the route that a move took; empty if nothing was moved.
func text(p *atomic.Pointer[string]) string {
	if way := p.Load(); way != nil {
		return *way
	}
	return ""
}

// full is a filled stage, for an offset of the span.
type full struct {
	b     *slot
	at, n uint64
	err   error
}

// drop releases a stage that was not sent.
func (p *full) drop() {
	if p.b != nil {
		p.b.done(nil)
	}
}

// storeStaged writes the span: while the owner reads one stage, the next ones are filled. They
// are written in order: see readPieces.
func storeStaged(ctx context.Context, f *File, m staging) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	queue := make(chan full, stagesAhead-1)
	var filling sync.WaitGroup
	filling.Go(func() { m.fill(ctx, f, queue) })
	var path string
	err := func() error {
		for p := range queue {
			if p.err != nil {
				p.drop()
				return p.err
			}
			out, err := m.ask(ctx, f, proto.MethodWrite, p.b, p.at, p.n)
			p.b.done(err)
			if err != nil {
				return err
			}
			path = out.Path
			if out.N < p.n {
				return short(proto.MethodWrite, p.at+out.N, uint64(m.span.Len()))
			}
		}
		return nil
	}()
	cancel()
	for p := range queue {
		p.drop()
	}
	filling.Wait()
	return path, err
}

// fill fills stages with the bytes of the span, in order, until the end of the span or of the
// context.
func (m *staging) fill(ctx context.Context, f *File, queue chan<- full) {
	defer close(queue)
	for at := uint64(0); at < uint64(m.span.Len()); {
		p := full{at: at, n: min(oneStage(), uint64(m.span.Len())-at)}
		at += p.n
		var src transport.Span
		if src, p.err = m.part(p.at, p.n); p.err == nil {
			p.b, p.err = m.s.stages.get(ctx)
		}
		if p.err == nil {
			_, p.err = f.n.c.opts.Engine.Copy(ctx, transport.HostSpan(p.b.filled(int(p.n))), src)
		}
		queue <- p // the receiver drains the queue
		if p.err != nil {
			return
		}
	}
}
