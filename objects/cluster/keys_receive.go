package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

const (
	// maxSizes bounds the blobs whose sizes are sent to the owner with a claim, to be compared
	// there. If there are more they are compared here.
	maxSizes = 2048
	// takeRetry is the pause before the owner is notified again that the bytes have arrived,
	// and takeFor the time for which that is retried beyond a request's timeout: as long as
	// the owner keeps the claim.
	takeRetry = 50 * time.Millisecond
	takeFor   = claimGrace
)

// ReceiveKey receives a publication of another node into a holder's blobs; see
// objects.Holder.Receive. The owner decides which node has received it: after an error it is
// offered to others, unless the answer to the last request was lost (ErrUnreachable).
//
// Errors: those of objects.Holder.Receive; ErrUnreachable, ErrStale, ErrDenied.
func (c *Cluster) ReceiveKey(ctx context.Context, h *objects.Holder, k objects.Keyed) error {
	r, err := c.reserve(ctx, h, k, true)
	if err == nil {
		err = r.fill(ctx)
	}
	if err != nil {
		return fmt.Errorf("receive %q: %w", k.Key, err)
	}
	return nil
}

// ClaimKey reserves a publication of another node for a holder. With wait it waits for another
// receiver that may still fail. The owner gives the reservation back if this node abandons it.
//
// Errors: those of objects.Holder.Claim; ErrUnreachable, ErrStale, ErrDenied.
func (c *Cluster) ClaimKey(ctx context.Context, h *objects.Holder, key string, wait bool) (objects.Reservation, error) {
	r, err := c.reserve(ctx, h, objects.Keyed{Key: key}, wait)
	if err != nil {
		return nil, fmt.Errorf("claim %q: %w", key, err)
	}
	return r, nil
}

// ReceivedKey reports whether a call that is asked again has received a publication of another node, by an earlier daemon of this one.
//
// Errors: *UnaskedError; the context's.
func (c *Cluster) ReceivedKey(ctx context.Context, h *objects.Holder, key string) (bool, error) {
	call := h.CallID(ctx, key)
	if call == (objects.CallID{}) || !objects.AskedAgain(ctx) {
		return false, nil
	}
	var received atomic.Bool
	err := c.keys.peers.each(ctx, ctx, func(n *Node) error {
		out, err := query[proto.ReceivedAnswer](ctx, n, proto.MethodReceived, &proto.ReceivedAsk{Key: key, Call: call, Claims: c.keys.mine})
		if err == nil && out.Received {
			received.Store(true)
		}
		return err
	})
	switch {
	case received.Load():
		return true, nil
	case err != nil:
		return false, fmt.Errorf("receive %q: %w", key, err)
	}
	return false, nil
}

// reserve claims a publication at its owner.
func (c *Cluster) reserve(ctx context.Context, h *objects.Holder, k objects.Keyed, wait bool) (r *receipt, err error) {
	err = c.keys.at(ctx, keyindex.Publish, k.Key, func(n *Node) error {
		for {
			r, err = n.reserve(ctx, h, k, wait)
			// Another receiver may still fail.
			if !wait || !errors.Is(err, objects.ErrBusy) || ctx.Err() != nil {
				return err
			}
		}
	})
	return r, err
}

func (n *Node) reserve(ctx context.Context, h *objects.Holder, k objects.Keyed, wait bool) (*receipt, error) {
	r := &receipt{n: n, holder: h, want: k, wait: wait, who: h.Caller().WithGroups()}
	_, _ = rand.Read(r.id[copy(r.id[:], n.c.keys.mine[:]):]) // never fails
	var err error
	if r.file, err = n.start(ctx, &File{n: n, who: r.who, access: objects.PermRead, by: r.claim}); err == nil {
		return r, nil
	}
	if r.asked {
		r.tellGiveBack(ctx)
	}
	return nil, err
}

// receipt is a publication that is being received.
type receipt struct {
	n      *Node
	holder *objects.Holder
	who    objects.Caller
	// want is the key, and the blobs that it must have; none accept any.
	want objects.Keyed
	// wait is true to wait for another claim to end.
	wait bool
	id   claimID
	file *File
	// asked is true if the owner may have the claim.
	asked bool
	blobs []uint64
}

// claim claims the publication, or continues with the claim in another session. Its error is
// the endpoint's.
func (r *receipt) claim(ctx context.Context, s *session) (uint64, error) {
	ask := &proto.ClaimAsk{Cred: credToProto(r.who), Key: r.want.Key, ID: r.id, Wait: r.wait}
	sizes := make([]uint64, len(r.want.Blobs))
	for i := range sizes {
		sizes[i] = r.want.Blobs[i].Len
	}
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
	if out.Handle == 0 || len(sizes) > 0 && !slices.Equal(out.Blobs, sizes) {
		r.asked = out.Handle != 0
		return 0, &objects.ShapeError{Want: out.Blobs, Got: sizes}
	}
	r.blobs = out.Blobs
	return out.Handle, nil
}

// fill copies the bytes into the requested blobs, and ends the claim.
func (r *receipt) fill(ctx context.Context) error {
	err := r.holder.Fill(ctx, objects.Scatter{Keyed: r.want, Exact: true}, objects.Source{Blobs: r.blobs, Span: r.file.Span})
	if err == nil {
		err = ctx.Err() // the caller has cancelled it
	}
	if err != nil {
		r.GiveBack(ctx)
		return err
	}
	return r.Take(ctx)
}

// Blobs returns the sizes of its blobs.
func (r *receipt) Blobs(context.Context) ([]uint64, error) { return r.blobs, nil }

// Fetch copies its bytes from offset off into a blob.
func (r *receipt) Fetch(ctx context.Context, to objects.Blob, off uint64) error {
	var size uint64
	for _, n := range r.blobs {
		size += n
	}
	sc := objects.Scatter{Keyed: objects.Keyed{Key: r.want.Key, Blobs: []objects.Blob{to}}, Offset: off}
	return r.holder.Fill(ctx, sc, objects.Source{Blobs: []uint64{size}, Span: r.file.Span})
}

// Take ends the claim as received, at its owner.
func (r *receipt) Take(ctx context.Context) error {
	err := r.take(ctx)
	if err == nil {
		r.n.c.keys.forget(keyindex.Publish, r.want.Key)
	}
	return errors.Join(err, r.file.Close(context.WithoutCancel(ctx)))
}

// GiveBack makes the owner offer the publication again.
func (r *receipt) GiveBack(ctx context.Context) {
	r.tellGiveBack(ctx)
	if err := r.file.Close(context.WithoutCancel(ctx)); err != nil {
		r.n.c.log.Debug("could not close the file of a claim", zap.String("node", string(r.n.name)), zap.Error(err))
	}
}

// take notifies the owner that the bytes have arrived, repeatedly until it gets an answer: the
// owner answers the same each time.
func (r *receipt) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.n.c.opts.Timeout+takeFor)
	defer cancel()
	for again := false; ; {
		err := r.n.ask(ctx, question{
			method: proto.MethodTake, in: &proto.TakeAsk{ID: r.id, Received: true, Call: r.holder.CallID(ctx, r.want.Key)}, again: true,
		})
		if !again && errors.Is(err, metadata.ErrNotExist) && r.reclaims(ctx) {
			again = true
			continue
		}
		if !errors.Is(err, ErrUnreachable) {
			return err
		}
		pause(ctx, takeRetry)
		if ctx.Err() != nil || r.n.c.life.Err() != nil {
			return err
		}
	}
}

// reclaims claims the publication again, if the owner's daemon has died since: claims end with it, and
// the publication is offered again.
func (r *receipt) reclaims(ctx context.Context) bool {
	s, err := r.n.live(ctx)
	if err != nil {
		return false
	}
	r.file.mu.Lock()
	before := r.file.in
	r.file.mu.Unlock()
	if before == nil || before.life >= s.life {
		return false
	}
	_, _, err = r.file.opened(ctx)
	return err == nil
}

// tellGiveBack notifies the owner that the publication was not received, so that it need not
// wait.
func (r *receipt) tellGiveBack(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	r.n.c.Go(func() {
		err := r.n.ask(ctx, question{method: proto.MethodTake, in: &proto.TakeAsk{ID: r.id}, again: true})
		if err != nil {
			r.n.c.log.Debug("could not release a claim", zap.String("node", string(r.n.name)), zap.Error(err))
		}
	})
}
