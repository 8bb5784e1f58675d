package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// slotSize is the default size of the largest request of the kernel.
	slotSize = devices.MiB
	// maxSlots bounds the slots of a session.
	maxSlots = 32
	// stageSize is the size of the slots for large moves: the cost of a request is then
	// relatively small.
	stageSize = 4 * devices.MiB
	maxStages = 8
)

// slots are pieces of our memory that a node may read and write as long as the session lasts,
// so that small moves need not share memory first.
type slots struct {
	n    *Node
	s    *session
	size devices.Size
	// room bounds the number of slots.
	room chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	free []*slot
	// +checklocks:mu
	closed bool
}

// slot is one slot. It has one user, from get or blank to done.
type slot struct {
	from   *slots
	buffer *region.Buffer
	memory []byte // the descriptor, encoded
	// used bounds the bytes, from the beginning, that may be non-zero.
	used int
}

func (p *slots) open(n *Node, s *session, size devices.Size, most int) {
	p.n, p.s, p.size, p.room = n, s, size, make(chan struct{}, most)
}

// get returns a slot, waiting for one while all are in use.
//
// Errors: control.ErrDisconnected; the context's.
func (p *slots) get(ctx context.Context) (*slot, error) {
	select {
	case p.room <- struct{}{}:
	case <-p.s.over:
		return nil, fmt.Errorf("the session has ended: %w", control.ErrDisconnected)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a slot: %w", ctx.Err())
	}
	p.mu.Lock()
	if last := len(p.free) - 1; last >= 0 {
		b := p.free[last]
		p.free = p.free[:last]
		p.mu.Unlock()
		return b, nil
	}
	p.mu.Unlock()
	b, err := p.make(ctx)
	if err != nil {
		<-p.room
		return nil, err
	}
	return b, nil
}

// blank is get for a read of n bytes: these are zeroed, so that nothing is exposed except
// bytes that the node puts there for this read. The node may claim more than it puts.
//
// No counter of the transport would detect that: with shared memory and RDMA the node writes
// without involving this process, and bytes that are put twice in one place leave another one
// unchanged.
func (p *slots) blank(ctx context.Context, n int) (*slot, error) {
	b, err := p.get(ctx)
	if err == nil {
		clear(b.bytes(min(n, b.used)))
		b.used = max(n, b.used)
	}
	return b, err
}

// make allocates memory and shares it.
func (p *slots) make(ctx context.Context) (*slot, error) {
	c := p.n.c
	buffer, err := c.comm.Table().Alloc(p.size)
	if err != nil {
		return nil, err
	}
	b := &slot{from: p, buffer: buffer}
	d, err := c.comm.Share(ctx, p.n.rank, buffer, wire.Readable|wire.Writable)
	if err != nil {
		return nil, errors.Join(err, p.n.giveBack(ctx, buffer))
	}
	b.memory = d.Append(nil)
	return b, nil
}

// bytes returns the first n bytes of the slot's memory.
func (b *slot) bytes(n int) []byte { return b.buffer.Host(0, devices.Size(n)) }

// filled returns the first n bytes of the slot's memory, to be filled by this node.
func (b *slot) filled(n int) []byte {
	b.used = max(n, b.used)
	return b.bytes(n)
}

// done ends the use of a slot. err, the error of the request, determines whether the node is
// done with it as well.
func (b *slot) done(err error) {
	p := b.from
	if certain(err) {
		p.mu.Lock()
		kept := !p.closed
		if kept {
			p.free = append(p.free, b)
		}
		p.mu.Unlock()
		if kept {
			<-p.room
			return
		}
	}
	p.drop(b, func() { <-p.room })
}

// drop releases the memory of a slot once the node is done with it, and then calls then.
func (p *slots) drop(b *slot, then func()) {
	c := p.n.c
	give := func() {
		defer then()
		if err := p.n.giveBack(c.life, b.buffer); err != nil {
			c.log.Warn("could not release the memory of a slot", zap.String("node", string(p.n.name)), zap.Error(err))
		}
	}
	if !c.Go(give) {
		give() // Close ends the sessions before it waits
	}
}

// close releases all slots. Those in use follow when they are done.
func (p *slots) close() {
	p.mu.Lock()
	free := p.free
	p.free, p.closed = nil, true
	p.mu.Unlock()
	for _, b := range free {
		p.drop(b, func() {})
	}
}

// giveBack ends the registration of memory that the node may still be using: if the node does
// not release it in time, its session is ended. When giveBack returns nil, the memory is ours
// alone. The end of ctx is ignored.
func (n *Node) giveBack(ctx context.Context, b *region.Buffer) error {
	ctx = context.WithoutCancel(ctx)
	soon, cancel := context.WithTimeout(ctx, n.c.opts.DialTimeout)
	defer cancel()
	err := b.Close(soon)
	if err == nil {
		return nil
	}
	n.c.log.Warn("a node does not release memory of this node; ending its session", zap.String("node", string(n.name)), zap.Error(err))
	if failure := n.c.comm.Disconnect(n.rank); failure != nil {
		n.c.log.Debug("disconnect", zap.String("node", string(n.name)), zap.Error(failure))
	}
	again, enough := context.WithTimeout(ctx, n.c.opts.DialTimeout)
	defer enough()
	return b.Close(again)
}
