package perf

import (
	"context"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The domain of a measurement: its ranks are those of the job.
const (
	domainName              = "perf"
	sendTag        wire.Tag = 1
	serverInDomain          = domain.Rank(serverRank)
	runnerInDomain          = domain.Rank(runnerRank)
)

// join makes the domain, together with the other side.
func (s *station) join(ctx context.Context) (*domain.Comm, error) {
	return s.domains.NewComm(ctx, domainName, []wire.Rank{serverRank, runnerRank})
}

// view returns the first n bytes of a buffer as a message.
func view(b *region.Buffer, n devices.Size) (domain.View, error) {
	return domain.NewView(b, 0, elem.Uint8, uint64(n))
}

// between is a domain and the memory of one side.
type between struct {
	domain *domain.Comm
	buffer *region.Buffer
}

// send sends messages, one after the other. When it returns, all have been received.
func (b *between) send(ctx context.Context, to domain.Rank, n devices.Size, count int) error {
	v, err := view(b.buffer, n)
	if err != nil {
		return err
	}
	for range count {
		if err := b.domain.Send(ctx, v, to, sendTag); err != nil {
			return err
		}
	}
	return b.domain.Flush(ctx, to)
}

// receive receives messages, one after the other.
func (b *between) receive(ctx context.Context, from domain.Rank, n devices.Size, count int) error {
	v, err := view(b.buffer, n)
	if err != nil {
		return err
	}
	for range count {
		if err := b.domain.Recv(ctx, v, from, sendTag); err != nil {
			return err
		}
	}
	return nil
}

// pong sends received messages back.
func (b *between) pong(ctx context.Context, with domain.Rank, n devices.Size, count int) error {
	v, err := view(b.buffer, n)
	if err != nil {
		return err
	}
	for range count {
		if err := b.domain.Recv(ctx, v, with, sendTag); err != nil {
			return err
		}
		if err := b.domain.Send(ctx, v, with, sendTag); err != nil {
			return err
		}
	}
	return nil
}

// ping sends a message and waits for its return.
func (b *between) ping(ctx context.Context, with domain.Rank, n devices.Size) error {
	v, err := view(b.buffer, n)
	if err != nil {
		return err
	}
	if err := b.domain.Send(ctx, v, with, sendTag); err != nil {
		return err
	}
	return b.domain.Recv(ctx, v, with, sendTag)
}

// several starts sends or receives together and waits for all.
func (b *between) several(ctx context.Context, row Row) error {
	v, err := view(b.buffer, row.Bytes)
	if err != nil {
		return err
	}
	begin := b.domain.Isend
	if row.Operation == OpRecv {
		begin = b.domain.Irecv
	}
	all := make([]*domain.Request, row.Depth)
	for i := range all {
		if all[i], err = begin(ctx, v, serverInDomain, sendTag); err != nil {
			return err
		}
	}
	for _, r := range all {
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	if row.Operation == OpSend {
		return b.domain.Flush(ctx, serverInDomain)
	}
	return nil
}

// messages measures half of the round trip of a message.
func (p *pair) messages(ctx context.Context) error {
	b := between{p.domain, p.buffer}
	rounds := p.opts.WarmUp + p.opts.Rounds
	took, err := p.beside(ctx, ask{Do: askPong, Size: latencySize, Count: rounds}, rounds, func(int) error {
		return b.ping(ctx, serverInDomain, latencySize)
	})
	if err != nil {
		return err
	}
	for i := range took {
		took[i] /= 2
	}
	p.add(Row{
		Mode: latency, Operation: OpSend, Transport: p.peer.Transport, Memory: p.local, PeerMemory: p.remote, Bytes: latencySize, Depth: 1,
	}, took[p.opts.WarmUp:])
	return nil
}

// beside times fn while the server executes a request.
func (p *pair) beside(ctx context.Context, a ask, rounds int, fn func(i int) error) ([]time.Duration, error) {
	if err := p.send(ctx, a); err != nil {
		return nil, err
	}
	took, err := timed(rounds, fn)
	if err != nil {
		return nil, err
	}
	_, err = p.answer(ctx)
	return took, err
}
