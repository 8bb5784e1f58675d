package perf

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
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

// talk sends and receives one message, in the memory of one side, again and again.
type talk struct {
	domain *domain.Comm
	view   domain.View
}

// newTalk makes the first n bytes of a buffer the message.
func newTalk(d *domain.Comm, b *region.Buffer, n devices.Size) (*talk, error) {
	v, err := domain.NewView(b, 0, elem.Uint8, uint64(n))
	return &talk{d, v}, err
}

// send sends messages, one after the other. When it returns, all have been received.
func (t *talk) send(ctx context.Context, to domain.Rank, count int) error {
	for range count {
		if err := t.domain.Send(ctx, t.view, to, sendTag); err != nil {
			return err
		}
	}
	return t.domain.Flush(ctx, to)
}

// receive receives messages, one after the other.
func (t *talk) receive(ctx context.Context, from domain.Rank, count int) error {
	for range count {
		if err := t.domain.Recv(ctx, t.view, from, sendTag); err != nil {
			return err
		}
	}
	return nil
}

// pong sends received messages back.
func (t *talk) pong(ctx context.Context, with domain.Rank, count int) error {
	for range count {
		if err := t.domain.Recv(ctx, t.view, with, sendTag); err != nil {
			return err
		}
		if err := t.domain.Send(ctx, t.view, with, sendTag); err != nil {
			return err
		}
	}
	return nil
}

// ping sends a message and waits for its return.
func (t *talk) ping(ctx context.Context, with domain.Rank) error {
	if err := t.domain.Send(ctx, t.view, with, sendTag); err != nil {
		return err
	}
	return t.domain.Recv(ctx, t.view, with, sendTag)
}

// several starts a row's sends or receives together and waits for all.
func (t *talk) several(ctx context.Context, row Row) (err error) {
	begin := t.domain.Isend
	if row.Operation == OpRecv {
		begin = t.domain.Irecv
	}
	all := make([]*domain.Request, row.Depth)
	for i := range all {
		if all[i], err = begin(ctx, t.view, serverInDomain, sendTag); err != nil {
			return err
		}
	}
	for _, r := range all {
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	if row.Operation == OpSend {
		return t.domain.Flush(ctx, serverInDomain)
	}
	return nil
}

// messages measures half of the round trip of a message.
func (p *pair) messages(ctx context.Context) error {
	t, err := newTalk(p.domain, p.buffer, latencySize)
	if err != nil {
		return err
	}
	row := Row{
		Mode: latency, Operation: OpSend, Transport: p.peer.Transport, Memory: p.local, PeerMemory: p.remote, Bytes: latencySize, Depth: 1,
	}
	return p.roundTrips(ctx, row, ask{Do: askPong, Size: latencySize}, func(int) error { return t.ping(ctx, serverInDomain) })
}
