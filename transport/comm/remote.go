package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Remote returns memory that a peer has shared as an end of copies: puts and gets
// between it and any span of this process.
//
// Its path is the session's transport, or "tcp" if that could not open the
// memory. Its errors are those of Put and Get. When the context ends, operations
// in progress are waited for, and no more are started: a peer that makes no
// progress loses its session after Options.Timeout.
//
// One copy uses one data connection, in order, so that a file that grows by it
// never has a gap before its last byte, whatever fails. Concurrent copies use
// several connections.
func (c *Communicator) Remote(peer wire.Rank, d wire.Descriptor) transport.Remote {
	return &remote{c: c, peer: peer, d: d}
}

type remote struct {
	c    *Communicator
	peer wire.Rank
	d    wire.Descriptor
}

// Fetch gets the bytes.
func (r *remote) Fetch(ctx context.Context, dst transport.Span, off devices.Offset) (transport.Path, error) {
	return r.move(ctx, wire.KindGet, dst, off)
}

// Store puts the bytes.
func (r *remote) Store(ctx context.Context, src transport.Span, off devices.Offset) (transport.Path, error) {
	return r.move(ctx, wire.KindPut, src, off)
}

func (r *remote) move(ctx context.Context, kind wire.Kind, local transport.Span, off devices.Offset) (_ transport.Path, err error) {
	carrier, err := r.c.Carrier(ctx, r.peer, r.d)
	if err != nil {
		return "", err
	}
	path := transport.Path(carrier)
	b, err := r.c.table.RegisterSpan(local)
	if err != nil {
		return path, fmt.Errorf("register memory for a %s with %s: %w", kind, r.peer, err)
	}
	// No request remains, so it does not wait.
	defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
	op := Op{Local: b, Remote: r.d, RemoteOff: uint64(off), Size: b.Size(), Ordered: true}
	q, err := r.c.async(ctx, r.peer, kind, &op)
	if err != nil {
		return path, err
	}
	if err = q.Wait(ctx); err == nil {
		return path, nil
	}
	if done, _ := q.Test(); !done {
		q.GiveUp()
		_ = q.Wait(context.WithoutCancel(ctx)) // the session ends if the peer makes no progress
	}
	return path, r.c.failed(r.peer, kind, &op, err)
}
