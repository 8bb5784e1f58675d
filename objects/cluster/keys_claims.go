package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// claimWait bounds the time for which a claim waits at the owner for another claim that
	// may still fail, before the requester asks again.
	claimWait = 2 * time.Second
	// claimGrace is the time for which a claim is kept that cannot be read any more, since its
	// session has ended: the receiver may come back.
	claimGrace = 5 * time.Second
	// claimMemory is the time for which the end of a claim is remembered, for a receiver that
	// repeats its request, and maxEnded bounds how many are remembered per node.
	claimMemory = time.Minute
	maxEnded    = 1 << 12
)

// claimID is the name that the receiver has chosen for a claim.
type claimID [16]byte

// claimTable holds the publications of this node that other nodes are about to receive:
//
//	open ──handles gone──> waiting ──grace──> given back
//	 ^ │                     │ │
//	 │ └─────── Take ────────┼─┴──> taken, or given back
//	 └───── the same ID ─────┘
//
// A claim is ended by whichever goroutine removes it from open. Its outcome is remembered.
type claimTable struct {
	c *Cluster

	mu sync.Mutex
	// +checklocks:mu
	open map[claimID]*claim
	// +checklocks:mu
	ended map[claimID]*outcome
	// calls has those by which a call of a session has received.
	// +checklocks:mu
	calls map[objects.CallID]*outcome
	// +checklocks:mu
	closed bool
}

// claim is one claim. The table's lock guards handles and grace.
type claim struct {
	of     *objects.Claimed
	holder *objects.Holder
	rank   wire.Rank
	key    string
	size   uint64
	blobs  []uint64
	// handles counts the handles that it is read by.
	handles int
	// grace gives the publication back; nil while there are handles.
	grace *time.Timer
}

// outcome is the end of a claim; err may be read once done is closed.
type outcome struct {
	rank     wire.Rank
	received bool
	call     objects.CallID
	done     chan struct{}
	err      error
	at       time.Time
}

func newClaims(c *Cluster) *claimTable {
	return &claimTable{c: c, open: map[claimID]*claim{}, ended: map[claimID]*outcome{}, calls: map[objects.CallID]*outcome{}}
}

// serveClaim starts to receive a publication, or continues in another session.
func (k *keys) serveClaim(ctx context.Context, g *servedSession, q *proto.ClaimAsk) (any, error) {
	t := k.claims
	c, err := t.find(q.ID, g.from.Rank)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if c, err = t.claim(ctx, g.from.Rank, q); err != nil {
			return nil, err
		}
		if len(q.Blobs) > 0 && !slices.Equal(q.Blobs, c.blobs) {
			t.giveBack(ctx, c)
			return &proto.ClaimAnswer{Size: c.size, Blobs: c.blobs}, nil
		}
		if err = t.add(q.ID, c); err != nil {
			t.giveBack(ctx, c)
			return nil, err
		}
		defer t.unhandle(ctx, q.ID, c)
	}
	handle, err := t.handle(ctx, q.ID, c, g.from)
	if err == nil {
		err = ctx.Err() // the requester no longer waits for the answer
	}
	if err != nil {
		return nil, err
	}
	return &proto.ClaimAnswer{Handle: handle, Size: c.size, Blobs: c.blobs}, nil
}

// find returns an open claim, or nil if the id is unknown.
//
// Errors: metadata.ErrNotExist for one that has ended; ErrDenied for another node's.
func (t *claimTable) find(id claimID, rank wire.Rank) (*claim, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.open[id]
	switch {
	case c != nil && c.rank != rank:
		return nil, fmt.Errorf("the claim belongs to another node: %w", ErrDenied)
	case c != nil:
		return c, nil
	case t.ended[id] != nil:
		return nil, fmt.Errorf("the claim has ended: %w", metadata.ErrNotExist)
	}
	return nil, nil
}

// claim claims a publication for a user of another node.
//
// Errors: those of Holder.Claim; objects.ErrBusy while another claim that may still fail has
// it.
func (t *claimTable) claim(ctx context.Context, rank wire.Rank, q *proto.ClaimAsk) (*claim, error) {
	by, err := t.c.server.user(q.Cred)
	if err != nil {
		return nil, err
	}
	c := &claim{holder: t.c.opts.Store.NewHolder(by.Caller), rank: rank, key: q.Key}
	soon, stop := context.WithTimeout(ctx, min(claimWait, t.c.opts.Timeout/2))
	defer stop()
	if c.of, err = c.holder.Claim(soon, q.Key, q.Wait); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("another receiver has claimed %q: %w", q.Key, objects.ErrBusy)
		}
		return nil, errors.Join(err, c.holder.Close(context.WithoutCancel(ctx)))
	}
	if c.blobs, err = c.of.Blobs(ctx); err != nil {
		t.giveBack(ctx, c)
		return nil, err
	}
	for _, n := range c.blobs {
		c.size += n
	}
	return c, nil
}

// add registers a claim under its id.
func (t *claimTable) add(id claimID, c *claim) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return fmt.Errorf("the node is leaving: %w", ErrUnreachable)
	case t.open[id] != nil || t.ended[id] != nil:
		return fmt.Errorf("the ID of the claim is already used: %w", objects.ErrInvalid)
	}
	t.open[id] = c
	c.handles++ // the caller's, until the handle is created
	return nil
}

// handle opens a claim for a session.
func (t *claimTable) handle(ctx context.Context, id claimID, c *claim, from rpc.Caller) (uint64, error) {
	t.mu.Lock()
	if t.open[id] != c {
		t.mu.Unlock()
		return 0, fmt.Errorf("the claim has ended: %w", metadata.ErrNotExist)
	}
	c.handles++
	if c.grace != nil {
		c.grace.Stop()
		c.grace = nil
	}
	t.mu.Unlock()
	f, err := c.of.Open(ctx)
	if err != nil {
		t.unhandle(ctx, id, c)
		return 0, err
	}
	number, err := t.c.server.hold(ctx, from, f, func() {
		_ = f.Close(context.WithoutCancel(ctx)) // the file was not written
		t.unhandle(ctx, id, c)
	})
	if err != nil {
		_ = f.Close(context.WithoutCancel(ctx))
		t.unhandle(ctx, id, c)
	}
	return number, err
}

// unhandle ends a handle. With the last one the grace period starts.
func (t *claimTable) unhandle(ctx context.Context, id claimID, c *claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.handles--; c.handles > 0 || t.open[id] != c {
		return
	}
	c.grace = time.AfterFunc(claimGrace, func() { t.expire(context.WithoutCancel(ctx), id, c) })
}

// expire gives back a claim whose receiver has not come back.
func (t *claimTable) expire(ctx context.Context, id claimID, c *claim) {
	t.mu.Lock()
	if t.open[id] != c || c.handles > 0 {
		t.mu.Unlock()
		return
	}
	o := t.endLocked(id, c, false)
	t.mu.Unlock()
	t.c.log.Info("the receiver of a claimed publication has disconnected; the publication is offered again", zap.String("key", c.key))
	t.giveBack(ctx, c)
	close(o.done)
}

// endLocked removes a claim from the open ones.
//
// +checklocks:t.mu
func (t *claimTable) endLocked(id claimID, c *claim, received bool) *outcome {
	delete(t.open, id)
	if c.grace != nil {
		c.grace.Stop()
		c.grace = nil
	}
	now := time.Now()
	if len(t.ended)%256 == 255 { // occasionally
		t.forgetLocked(now)
	}
	o := &outcome{rank: c.rank, received: received, done: make(chan struct{}), at: now}
	t.ended[id] = o
	return o
}

// forgetLocked forgets outcomes that are old, or that exceed the bound of their node: no node
// causes the outcomes of others to be forgotten.
//
// +checklocks:t.mu
func (t *claimTable) forgetLocked(now time.Time) {
	of := map[wire.Rank]int{}
	maps.DeleteFunc(t.calls, func(_ objects.CallID, o *outcome) bool { return now.Sub(o.at) > claimMemory })
	maps.DeleteFunc(t.ended, func(_ claimID, o *outcome) bool {
		if now.Sub(o.at) > claimMemory || of[o.rank] == maxEnded {
			return true
		}
		of[o.rank]++
		return false
	})
}

// serveTake ends a claim. If it is repeated, the answer is the same.
func (k *keys) serveTake(ctx context.Context, g *servedSession, q *proto.TakeAsk) (any, error) {
	t, id := k.claims, claimID(q.ID)
	t.mu.Lock()
	c, o := t.open[id], t.ended[id]
	if c != nil && c.rank == g.from.Rank {
		o = t.endLocked(id, c, q.Received)
		if o.call = q.Call; q.Received && o.call != (objects.CallID{}) {
			t.calls[o.call] = o
		}
	} else {
		c = nil
	}
	t.mu.Unlock()
	if o == nil && q.Received && objects.ReceivedBy(k.c.opts.Store, q.Call) {
		return nil, nil
	}
	if o == nil || o.rank != g.from.Rank {
		return nil, fmt.Errorf("unknown claim: %w", metadata.ErrNotExist)
	}
	if c != nil {
		if q.Received {
			o.err = t.take(ctx, c, q.Call)
		} else {
			t.giveBack(ctx, c)
		}
		close(o.done)
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if q.Received && !o.received {
		return nil, fmt.Errorf("the publication was offered again: %w", metadata.ErrNotExist)
	}
	return nil, o.err
}

// serveReceived reports whether a call of a daemon that is dead has received a publication. Its claims of the key end: a request
// to take one that is still on its way must not be carried out after the answer.
func (k *keys) serveReceived(ctx context.Context, g *servedSession, q *proto.ReceivedAsk) (any, error) {
	t, over := k.claims, map[*claim]*outcome{}
	t.mu.Lock()
	for id, c := range t.open {
		if c.rank == g.from.Rank && c.key == q.Key && !bytes.HasPrefix(id[:], q.Claims[:]) {
			over[c] = t.endLocked(id, c, false)
		}
	}
	o := t.calls[q.Call]
	t.mu.Unlock()
	for c, o := range over {
		t.giveBack(ctx, c)
		close(o.done)
	}
	if o == nil || o.rank != g.from.Rank {
		return &proto.ReceivedAnswer{Received: objects.ReceivedBy(k.c.opts.Store, q.Call)}, nil
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &proto.ReceivedAnswer{Received: o.err == nil}, nil
}

// take ends a claim as received, even if the requester's context has ended: the request has
// decided it.
func (t *claimTable) take(ctx context.Context, c *claim, call objects.CallID) error {
	ctx = context.WithoutCancel(ctx)
	err := c.of.TakeFor(ctx, call)
	return errors.Join(err, c.holder.Close(ctx))
}

func (t *claimTable) giveBack(ctx context.Context, c *claim) {
	ctx = context.WithoutCancel(ctx)
	c.of.GiveBack(ctx)
	if err := c.holder.Close(ctx); err != nil {
		t.c.log.Warn("could not end a claim", zap.Error(err))
	}
}

// close gives all claims back. No handler runs any more.
func (t *claimTable) close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	left := t.open
	t.open = map[claimID]*claim{}
	for _, c := range left {
		if c.grace != nil {
			c.grace.Stop()
		}
	}
	t.mu.Unlock()
	for _, c := range left {
		t.giveBack(ctx, c)
	}
}
