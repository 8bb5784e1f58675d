package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

const (
	// maxSizes is how many blobs are told to the owner with a claim, for him to
	// compare. With more they are compared here.
	maxSizes = 2048
	// takeRetry is the pause before the owner is told again that the bytes are
	// there, and takeFor how long that is tried beyond a question's time: as
	// long as he keeps the claim.
	takeRetry = 50 * time.Millisecond
	takeFor   = claimGrace
)

// ReceiveKey receives what another node has published into a holder's blobs; see
// objects.Holder.Receive. The owner decides who has received it: after an error
// it is offered to others, unless the answer to the last question was lost
// (ErrUnreachable).
//
// Errors: those of objects.Holder.Receive; ErrUnreachable, ErrStale, ErrDenied.
func (c *Cluster) ReceiveKey(ctx context.Context, h *objects.Holder, k objects.Keyed) error {
	err := c.keys.at(ctx, keyindex.Publish, k.Key, func(n *Node) error {
		for {
			err := n.receive(ctx, h, k)
			// Somebody else may still fail to receive it.
			if !errors.Is(err, objects.ErrBusy) || ctx.Err() != nil {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("receive %q: %w", k.Key, err)
	}
	c.keys.forget(keyindex.Publish, k.Key)
	return nil
}

func (n *Node) receive(ctx context.Context, h *objects.Holder, k objects.Keyed) (err error) {
	r := &receipt{n: n, want: k, who: credOf(h.Caller())}
	_, _ = rand.Read(r.id[:]) // never fails
	r.file, err = n.start(ctx, &File{n: n, who: r.who, access: Read, by: r.claim})
	if err == nil {
		err = h.Fill(ctx, objects.Scatter{Keyed: k, Exact: true}, objects.Source{Blobs: r.blobs, Span: r.file.Span})
	}
	if err == nil {
		err = ctx.Err() // it is not wanted any more
	}
	if err == nil {
		err = r.take(ctx)
	} else if r.asked {
		r.giveBack(ctx)
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close(ctx))
	}
	return err
}

// receipt is one publication that is being received.
type receipt struct {
	n    *Node
	who  Cred
	want objects.Keyed
	id   claimID
	file *File
	// asked says that the owner may have the claim.
	asked bool
	blobs []uint64
}

// claim claims the publication, or goes on with the claim in another session.
// Its error is the endpoint's.
func (r *receipt) claim(ctx context.Context, s *session) (uint64, error) {
	ask := &proto.ClaimAsk{Cred: credToProto(r.who), Key: r.want.Key, ID: r.id}
	sizes := sizesOf(r.want.Blobs)
	if len(sizes) <= maxSizes {
		ask.Blobs = sizes
	}
	r.asked = true
	var out proto.ClaimAnswer
	if err := r.n.askIn(ctx, s, question{method: proto.MethodClaim, in: ask, out: &out}); err != nil {
		return 0, err
	}
	if err := addUp(out.Blobs, out.Size); err != nil {
		return 0, err
	}
	if out.Handle == 0 || !slices.Equal(out.Blobs, sizes) {
		r.asked = out.Handle != 0
		return 0, &objects.ShapeError{Want: out.Blobs, Got: sizes}
	}
	r.blobs = out.Blobs
	return out.Handle, nil
}

// take tells the owner that the bytes are here, again and again until he has
// heard it: he answers the same each time.
func (r *receipt) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.n.c.opts.Timeout+takeFor)
	defer cancel()
	for {
		err := r.n.ask(ctx, question{
			method: proto.MethodTake, in: &proto.TakeAsk{ID: r.id, Received: true}, again: true,
		})
		if !errors.Is(err, ErrUnreachable) {
			return err
		}
		pause := time.NewTimer(takeRetry)
		select {
		case <-pause.C:
		case <-r.n.c.life.Done():
			pause.Stop()
			return err
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// giveBack tells the owner that it is not received, so that he need not wait.
func (r *receipt) giveBack(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	r.n.c.begin(func() {
		err := r.n.ask(ctx, question{method: proto.MethodTake, in: &proto.TakeAsk{ID: r.id}, again: true})
		if err != nil {
			r.n.c.log.Debug("a claim could not be given back", zap.String("node", string(r.n.name)), zap.Error(err))
		}
	})
}
