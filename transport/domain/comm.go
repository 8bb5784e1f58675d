package domain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Rank is a rank of a domain: its index in the domain's list. A wire.Rank is a rank of the
// job.
type Rank int

// Comm is a domain: ranks that send to and receive from each other. Its methods may be
// called from any goroutine.
type Comm struct {
	d     *Domains
	name  string
	ranks []wire.Rank
	me    Rank
	index uint32
	// pairs is indexed by rank, byWorld by rank of the job.
	pairs   []*pair
	byWorld map[wire.Rank]*pair
	// life ends with Destroy.
	life    context.Context //nolint:containedctx // it is the lifetime of the domain, from NewComm to Destroy
	cancel  context.CancelFunc
	running sync.WaitGroup
	// formed is closed when all ranks have joined, broken when the domain can't be made.
	formed chan struct{}
	broken chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	forming bool
	// +checklocks:mu
	destroyed bool
	// err is the reason why the domain can't be made.
	// +checklocks:mu
	err error
}

// Name returns the name of the domain.
func (c *Comm) Name() string { return c.name }

// Rank returns our own rank in the domain.
func (c *Comm) Rank() Rank { return c.me }

// Size returns the number of ranks.
func (c *Comm) Size() int { return len(c.ranks) }

// Ranks returns the ranks of the job, indexed by rank of the domain.
func (c *Comm) Ranks() []wire.Rank { return slices.Clone(c.ranks) }

// Destroy ends the domain: pending requests complete with ErrDestroyed, and at the peers
// with ErrLeft. When it returns, nothing of the domain runs any more. Other domains and the
// connections continue. A second Destroy has no effect.
func (c *Comm) Destroy() error {
	c.mu.Lock()
	already := c.destroyed
	c.destroyed, c.forming = true, false
	c.mu.Unlock()
	if already {
		c.running.Wait()
		return nil
	}
	c.d.mu.Lock()
	delete(c.d.byIndex, c.index)
	if c.d.byName[c.name] == c {
		delete(c.d.byName, c.name)
	}
	c.d.mu.Unlock()
	var errs []error
	for _, p := range c.pairs {
		first := p.shut(ErrDestroyed)
		// Once its request has ended, a caller may overwrite its buffers: a peer that
		// fetches must not mistake that for the message.
		errs = append(errs, p.revokeAll())
		if first {
			p.abandon(ErrDestroyed)
		}
		p.purge()
		c.mu.Lock()
		told := p.told.Session != 0
		c.mu.Unlock()
		if told {
			p.tell(appendHead(nil, opLeave, c.index))
		}
	}
	c.cancel()
	c.running.Wait()
	c.d.log.Info("domain destroyed", zap.String("name", c.name))
	return errors.Join(errs...)
}

// pair returns the pair with a rank.
func (c *Comm) pair(peer Rank) (*pair, error) {
	if peer < 0 || int(peer) >= len(c.pairs) {
		return nil, fmt.Errorf("rank %d does not exist in domain %q, which has %d ranks: %w", int(peer), c.name, len(c.pairs), ErrNotMember)
	}
	return c.pairs[peer], nil
}

// Prepare grants every peer the right to fetch from buffers; otherwise the first large send
// from each buffer does so.
func (c *Comm) Prepare(ctx context.Context, buffers ...*region.Buffer) error {
	views := make([]View, len(buffers))
	for i, b := range buffers {
		views[i].buffer = b
	}
	for _, p := range c.pairs {
		if p.self {
			continue
		}
		if _, err := p.places(ctx, views); err != nil {
			return fmt.Errorf("prepare buffers for %s in domain %q: %w", p.world, c.name, err)
		}
	}
	return nil
}

// start initializes a request and starts it. With load, small device memory is copied to
// the host first: the send then does not depend on its receive.
func (c *Comm) start(ctx context.Context, r *Request, k kind, peer Rank, tag wire.Tag, load bool) error {
	p, err := c.pair(peer)
	if err != nil {
		return err
	}
	r.pair, r.kind, r.tag, r.total = p, k, tag, sum(r.views)
	if k != kindFlush && (len(r.views) == 0 || len(r.views) > MaxViews) {
		return r.describe(fmt.Errorf("%d buffers; use 1 to %d: %w", len(r.views), MaxViews, ErrMismatch))
	}
	for _, v := range r.views {
		if v.buffer == nil {
			return r.describe(fmt.Errorf("a view was not made by NewView: %w", ErrMismatch))
		}
	}
	if k == kindRecv {
		return p.recv(r) //nolint:contextcheck // fetching ends with the domain
	}
	if load {
		if err = r.load(ctx); err != nil {
			return r.describe(err)
		}
	}
	return p.send(ctx, r)
}

// async starts a request for which the caller waits later.
func (c *Comm) async(ctx context.Context, k kind, peer Rank, tag wire.Tag, views []View) (*Request, error) {
	r := newRequest()
	if len(views) == 1 {
		r.one[0] = views[0]
		r.views = r.one[:]
	} else {
		r.views = slices.Clone(views)
	}
	if err := c.start(ctx, r, k, peer, tag, false); err != nil {
		return nil, err
	}
	return r, nil
}

// do runs a request to its end, and keeps it for reuse if it succeeded. If views is nil, v
// is the only view.
func (c *Comm) do(ctx context.Context, k kind, peer Rank, tag wire.Tag, v View, views []View) error {
	r, ok := c.d.requests.Get().(*Request)
	if !ok {
		r = newRequest()
	}
	if r.views = views; views == nil {
		r.one[0] = v
		r.views = r.one[:]
	}
	if err := c.start(ctx, r, k, peer, tag, k == kindSend); err != nil {
		return err
	}
	if r.pair.self && r.pair.unmet(r) {
		return r.withdraw(r.describe(ErrSelf)) //nolint:contextcheck // a withdrawal must not end with the context
	}
	if err := r.Finish(ctx); err != nil {
		return err
	}
	done, timer := r.done, r.timer
	*r = Request{done: done, timer: timer}
	c.d.requests.Put(r)
	return nil
}

// Send sends a view and returns when its memory may be reused: when the bytes have been
// sent or, for a large message, when the peer has fetched them. The receive of a send to
// our own rank must have been started before.
//
// Errors: ErrNotMember; ErrSelf; those of Request.Wait. A send that times out is withdrawn,
// and is not received.
func (c *Comm) Send(ctx context.Context, v View, to Rank, tag wire.Tag) error {
	return c.do(ctx, kindSend, to, tag, v, nil)
}

// Recv receives the next message of a rank and tag into a view, which must have the
// message's type and count. Its errors are those of Send. If it times out during a
// transfer, bytes may still arrive, and the buffer is held, until the transfer or its
// session ends.
func (c *Comm) Recv(ctx context.Context, v View, from Rank, tag wire.Tag) error {
	return c.do(ctx, kindRecv, from, tag, v, nil)
}

// Isend starts a send. The bytes must not change before the request is complete. The
// context applies to the start only.
func (c *Comm) Isend(ctx context.Context, v View, to Rank, tag wire.Tag) (*Request, error) {
	return c.async(ctx, kindSend, to, tag, []View{v})
}

// Irecv starts a receive. The context applies to the start only.
func (c *Comm) Irecv(ctx context.Context, v View, from Rank, tag wire.Tag) (*Request, error) {
	return c.async(ctx, kindRecv, from, tag, []View{v})
}

// SendMulti sends several views as one message, which one RecvMulti with as many views of
// the same types and counts receives.
func (c *Comm) SendMulti(ctx context.Context, views []View, to Rank, tag wire.Tag) error {
	return c.do(ctx, kindSend, to, tag, View{}, nonNil(views))
}

// RecvMulti receives a message of SendMulti.
func (c *Comm) RecvMulti(ctx context.Context, views []View, from Rank, tag wire.Tag) error {
	return c.do(ctx, kindRecv, from, tag, View{}, nonNil(views))
}

// nonNil replaces nil by an empty list, which is rejected.
func nonNil(views []View) []View {
	if views == nil {
		return []View{}
	}
	return views
}

// SendRecv sends one view and receives another concurrently, with one tag.
func (c *Comm) SendRecv(ctx context.Context, send View, to Rank, recv View, from Rank, tag wire.Tag) error {
	return c.Group(ctx, func(g *Group) {
		g.Recv(recv, from, tag)
		g.Send(send, to, tag)
	})
}

// Flush waits until every earlier message to a rank has been matched with a receive. It
// returns the mismatches since the last Flush of messages whose Send had already returned.
func (c *Comm) Flush(ctx context.Context, to Rank) error {
	r := newRequest()
	if err := c.start(ctx, r, kindFlush, to, 0, false); err != nil {
		return err
	}
	return errors.Join(r.Finish(ctx), r.pair.flushed())
}

// Communicator returns the communicator of the domain.
func (c *Comm) Communicator() *comm.Communicator { return c.d.c }
