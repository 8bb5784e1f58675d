package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// remotePiece is how much of a span one put or get moves: enough for all
	// channels, and little enough that one that is given up ends soon.
	remotePiece = 16 * devices.MiB
	// remoteAhead is how many of them are under way: when one ends, the next
	// is in the queues already.
	remoteAhead = 3
)

// Remote is memory that a peer has shared, as an end of copies: puts and gets
// between it and any span of this process.
//
// Its path is the session's transport, or "tcp" where that could not open the
// memory. Its errors are those of Put and Get. When the context ends, what is
// under way is waited for, and nothing more begun: a peer that does not go on
// loses its session after Options.Timeout.
func (c *Communicator) Remote(peer wire.Rank, d wire.Descriptor) transport.Remote {
	return &remote{c: c, peer: peer, d: d}
}

type remote struct {
	c    *Communicator
	peer wire.Rank
	d    wire.Descriptor
}

// Fetch gets.
func (r *remote) Fetch(ctx context.Context, dst transport.Span, off devices.Offset) (transport.Path, error) {
	return r.move(ctx, wire.KindGet, dst, off)
}

// Store puts.
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
		return path, fmt.Errorf("lend memory for a %s with %s: %w", kind, r.peer, err)
	}
	// No request is left, so it does not wait.
	defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
	return path, r.pieces(ctx, kind, b, off)
}

// pieces moves the whole buffer, some pieces at a time, and returns when no
// request is left.
func (r *remote) pieces(ctx context.Context, kind wire.Kind, b *region.Buffer, off devices.Offset) error {
	var under []*Request
	var failure error
	for at := devices.Size(0); failure == nil && (at < b.Size() || len(under) > 0); {
		if at < b.Size() && len(under) < remoteAhead {
			op := Op{
				Local: b, LocalOff: devices.Offset(at), Remote: r.d, RemoteOff: uint64(off) + uint64(at),
				Size: min(remotePiece, b.Size()-at),
			}
			var q *Request
			if q, failure = r.c.async(ctx, r.peer, kind, &op); failure == nil {
				under = append(under, q)
				at += op.Size
			}
			continue
		}
		if failure = under[0].Wait(ctx); failure == nil {
			under = under[1:]
		}
	}
	for _, q := range under {
		// The session ends if the peer does not go on.
		_ = q.Wait(context.WithoutCancel(ctx))
	}
	if failure != nil {
		return fmt.Errorf("%s of %v with %s: %w", kind, b.Size(), r.peer, failure)
	}
	return nil
}
