package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// pair is memory at both ends.
type pair struct {
	*runner

	local, remote devices.Name
	buffer        *region.Buffer
	descriptor    wire.Descriptor
	// carrier is the transport that moves the bytes: TCP if the session's transport can't
	// reach the server's memory.
	carrier comm.Transport
	// domain is used for sends and receives; nil if they are not measured.
	domain *domain.Comm
	// bounce is the memory for OpBounce.
	bounce bounce
	// seed differs for each row, so that content left by an earlier row is not mistaken for
	// this one's.
	seed uint64
	// requests are the requests in flight, kept for reuse.
	requests []*comm.Request
}

// pair measures the operations between two kinds of memory.
func (r *runner) pair(ctx context.Context, local, remote devices.Name) (err error) {
	most := max(slices.Max(r.opts.Sizes), latencySize)
	m, err := r.take(ctx, local, most)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.free(context.WithoutCancel(ctx))) }()
	d, err := r.askMemory(ctx, ask{Do: askOpen, Memory: remote, Size: most})
	if err != nil {
		return err
	}
	carrier, err := r.comm.Carrier(ctx, serverRank, d)
	if err != nil {
		return err
	}
	if carrier != r.peer.Transport {
		if r.named != Auto {
			return fmt.Errorf("transport %s can't reach it, and %s was not requested", r.named, carrier)
		}
		r.opts.Progress(fmt.Sprintf("memory %s of %s goes by %s: %s can't reach it", remote, serverRank, carrier, r.peer.Transport))
	}
	p := &pair{runner: r, local: local, remote: remote, buffer: m.buffer, descriptor: d, carrier: carrier}
	if r.wants(OpSend, OpRecv) {
		if err = p.connect(ctx); err != nil {
			return fmt.Errorf("domain: %w", err)
		}
		defer func() { err = errors.Join(err, p.domain.Destroy()) }() //nolint:contextcheck // cleanup must not depend on the context
	}
	if r.wants(OpBounce) {
		defer func() { err = errors.Join(err, p.bounce.memory.free(context.WithoutCancel(ctx))) }()
		if err = p.openBounce(ctx, most); err != nil {
			return fmt.Errorf("bounce memory: %w", err)
		}
	}
	return p.rows(ctx)
}

// connect makes the domain, together with the server.
func (p *pair) connect(ctx context.Context) error {
	if err := p.send(ctx, ask{Do: askJoin}); err != nil {
		return err
	}
	d, err := p.join(ctx)
	if err != nil {
		return err
	}
	p.domain = d
	if _, err := p.answer(ctx); err != nil {
		return errors.Join(err, d.Destroy()) //nolint:contextcheck // cleanup must not depend on the context
	}
	return nil
}

// rows measures all rows.
func (p *pair) rows(ctx context.Context) error {
	r := p.runner
	for _, op := range r.opts.Operations {
		var err error
		switch op {
		case OpPut, OpGet:
			err = p.measure(ctx, Row{Mode: latency, Operation: op, Bytes: latencySize, Depth: 1}, r.opts.Rounds)
		case OpSend:
			err = p.messages(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, n := range r.opts.Sizes {
		for _, op := range r.opts.Operations {
			if op == OpTag {
				continue
			}
			row := Row{Mode: bandwidth, Operation: op, Bytes: n, Depth: r.opts.Depth}
			if err := p.measure(ctx, row, r.opts.times(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure measures and verifies one row.
func (p *pair) measure(ctx context.Context, row Row, times int) error {
	p.seed++
	if err := p.prepare(ctx, row); err != nil {
		return err
	}
	warm := p.opts.warmUp(row.Mode, times)
	took, err := p.times(ctx, row, warm+times)
	if err != nil {
		return fmt.Errorf("%s of %v: %w", row.Operation, row.Bytes, err)
	}
	differs, err := p.differs(ctx, row)
	if err != nil {
		return err
	}
	if differs >= 0 {
		return fmt.Errorf("%s of %v: byte %d is wrong", row.Operation, row.Bytes, differs)
	}
	row.Transport, row.Memory, row.PeerMemory, row.Verified = p.carrier, p.local, p.remote, true
	p.add(row, took[warm:])
	return nil
}

// times times a row's operation, including the server's part if it has one.
func (p *pair) times(ctx context.Context, row Row, times int) ([]time.Duration, error) {
	a := ask{Do: askReceive, Size: row.Bytes, Count: times * row.Depth}
	switch row.Operation {
	case OpRecv:
		a.Do = askSend
	case OpBounce:
		a.Do = askStore
		return p.beside(ctx, a, times, func(int) error { return p.bouncedPut(ctx, row) })
	case OpSend:
	default:
		return timed(times, func(int) error { return p.move(ctx, row) })
	}
	t, err := newTalk(p.domain, p.buffer, row.Bytes)
	if err != nil {
		return nil, err
	}
	return p.beside(ctx, a, times, func(int) error { return t.several(ctx, row) })
}

// move starts as many operations of a row as its depth, and waits for all.
func (p *pair) move(ctx context.Context, row Row) error {
	op := comm.Op{Local: p.buffer, Remote: p.descriptor, Size: row.Bytes}
	do, begin := p.comm.Put, p.comm.PutAsync
	if row.Operation == OpGet {
		do, begin = p.comm.Get, p.comm.GetAsync
	}
	if row.Depth == 1 {
		return do(ctx, serverRank, op)
	}
	p.requests = p.requests[:0]
	for range row.Depth {
		req, err := begin(ctx, serverRank, op)
		if err != nil {
			return err
		}
		p.requests = append(p.requests, req)
	}
	for _, req := range p.requests {
		if err := req.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare writes the content to the source of the operation.
func (p *pair) prepare(ctx context.Context, row Row) error {
	if row.Operation == OpPut || row.Operation == OpSend || row.Operation == OpBounce {
		return write(ctx, p.buffer, p.seed, row.Bytes)
	}
	_, err := p.ask(ctx, ask{Do: askFill, Seed: p.seed, Size: row.Bytes})
	return err
}

// differs verifies every byte at the destination of the operation.
func (p *pair) differs(ctx context.Context, row Row) (int64, error) {
	if row.Operation == OpGet || row.Operation == OpRecv {
		return verify(ctx, p.buffer, p.seed, row.Bytes)
	}
	got, err := p.ask(ctx, ask{Do: askVerify, Seed: p.seed, Size: row.Bytes})
	return got.Differs, err
}
