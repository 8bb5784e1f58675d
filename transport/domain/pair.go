package domain

import (
	"context"
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// pair is this rank and one other in a domain. It shares no lock with other
// pairs.
type pair struct {
	c     *Comm
	rank  Rank
	world wire.Rank
	self  bool
	// joined says that the peer has made the domain, told in which session it
	// was told that we have; both are guarded by c.mu.
	// came stays true when a peer that has joined gives up before we do.
	joined bool
	came   bool
	told   comm.Origin
	// accepted is the attempt of the peer that knows of ours; guarded by c.mu.
	accepted joiner
	// kick makes NewComm look again.
	kick chan struct{}

	// keyMu is held while a key is given or revoked, and then no other is.
	keyMu sync.Mutex
	// keys are those that the peer may read, each buffer once.
	// +checklocks:keyMu
	keys map[*region.Buffer]wire.Descriptor
	// sweepAt is the number of keys at which closed buffers are looked
	// for.
	// +checklocks:keyMu
	sweepAt int

	mu sync.Mutex
	// origin is the session, remote the number of the domain at the peer, and
	// window the most that may lie there.
	// +checklocks:mu
	origin comm.Origin
	// +checklocks:mu
	remote uint32
	// +checklocks:mu
	window uint64
	// err is why the pair is at its end.
	// +checklocks:mu
	err error

	// What we send: credit is what is left of the window, out are requests
	// that are not wholly written, sending those that the peer must answer.
	// +checklocks:mu
	credit uint64
	// +checklocks:mu
	out lane[*Request]
	// +checklocks:mu
	pumping bool
	// +checklocks:mu
	last uint64
	// +checklocks:mu
	sending map[uint64]*Request
	// late are the mismatches of messages whose send was complete.
	// +checklocks:mu
	late []error
	// scratch is the buffer in which packets are made.
	// +checklocks:mu
	scratch scratch

	// What we receive: held is what the peer has used of our window, owed the
	// part of it that is free again and that it has not been told.
	// +checklocks:mu
	posted lanes[*Request]
	// +checklocks:mu
	unexpected lanes[*message]
	// arriving are messages whose bytes are not all there.
	// +checklocks:mu
	arriving map[uint64]*message
	// active are receives that have met their message.
	// +checklocks:mu
	active map[*Request]struct{}
	// +checklocks:mu
	flushes []flush
	// +checklocks:mu
	held uint64
	// +checklocks:mu
	owed uint64
	// +checklocks:mu
	free []*message
}

// scratch is memory that is used again and again.
type scratch struct {
	head  []byte
	parts [][]byte
	env   envelope
}

func newPair(c *Comm, rank Rank, world wire.Rank) *pair {
	return &pair{
		c: c, rank: rank, world: world, self: rank == c.me, joined: rank == c.me, kick: make(chan struct{}, 1),
		keys: map[*region.Buffer]wire.Descriptor{}, sweepAt: minSweep,
		sending: map[uint64]*Request{}, arriving: map[uint64]*message{}, active: map[*Request]struct{}{},
	}
}

// hearsLocked says whether something that came in a session is for us.
//
// +checklocks:p.mu
func (p *pair) hearsLocked(from comm.Origin) bool { return p.err == nil && p.origin == from }

// fail ends the pair: every request gets an error. What has arrived whole can
// still be received.
func (p *pair) fail(err error) {
	if p.shut(err) {
		p.abandon(err)
	}
}

// shut lets nothing begin or complete any more; true is the first time.
func (p *pair) shut(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false
	}
	p.err = err
	return true
}

// abandon ends every request of a pair that is shut.
func (p *pair) abandon(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.posted.drain()
	all = append(all, p.out.items[p.out.head:]...)
	p.out = lane[*Request]{}
	for _, r := range p.sending {
		all = append(all, r)
	}
	for r := range p.active {
		all = append(all, r)
	}
	clear(p.sending)
	clear(p.arriving)
	for _, m := range p.unexpected.drain() {
		switch {
		case m.from != nil:
			all = append(all, m.from)
		case m.eager && m.got == m.total:
			p.unexpected.push(m.tag, m)
		}
	}
	p.flushes = nil
	for _, r := range all {
		p.endLocked(r, r.describe(err))
	}
}

// purge drops what could still be received.
func (p *pair) purge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unexpected.drain()
}

// resetLocked forgets what came in an earlier session.
//
// +checklocks:p.mu
func (p *pair) resetLocked() {
	p.unexpected.drain()
	clear(p.arriving)
	p.flushes, p.held, p.owed = nil, 0, 0
}

// minSweep is the least number of keys that are looked through.
const minSweep = 64

// places returns where the peer finds the bytes of views. The first time for a
// buffer it is given a key, which it keeps until the buffer is closed.
func (p *pair) places(ctx context.Context, views []View) ([]place, error) {
	out := make([]place, 0, len(views))
	p.keyMu.Lock()
	defer p.keyMu.Unlock()
	for _, v := range views {
		d, ok := p.keys[v.buffer]
		if !ok {
			var err error
			if d, err = p.shareLocked(ctx, v.buffer); err != nil {
				return nil, err
			}
		}
		out = append(out, place{d, uint64(v.off)})
	}
	return out, nil
}

// shareLocked gives the peer a key to a buffer.
//
// +checklocks:p.keyMu
func (p *pair) shareLocked(ctx context.Context, b *region.Buffer) (wire.Descriptor, error) {
	if len(p.keys) >= p.sweepAt {
		p.sweepLocked(ctx)
	}
	d, err := p.c.d.c.Share(ctx, p.world, b, wire.Readable)
	if err != nil {
		return wire.Descriptor{}, err
	}
	p.keys[b] = d
	p.c.d.stats.keys.Add(1)
	return d, nil
}

// sweepLocked forgets the keys to buffers that are closed.
//
// +checklocks:p.keyMu
func (p *pair) sweepLocked(ctx context.Context) {
	for b, d := range p.keys {
		if b.Hold() == nil {
			b.Drop()
			continue
		}
		// A key to a closed buffer names nothing: it can't fail to go.
		_ = p.c.d.c.Revoke(ctx, p.world, d.Key)
		delete(p.keys, b)
	}
	p.sweepAt = max(minSweep, 2*len(p.keys))
}

// revoke takes the keys to the buffers of views back, at once. An error says
// that the peer was reading and may do so for a moment.
func (p *pair) revoke(views []View) error {
	p.keyMu.Lock()
	defer p.keyMu.Unlock()
	var errs []error
	for _, v := range views {
		if d, ok := p.keys[v.buffer]; ok {
			delete(p.keys, v.buffer)
			errs = append(errs, p.revokeKey(d.Key))
		}
	}
	return errors.Join(errs...)
}

// revokeAll takes every key back.
func (p *pair) revokeAll() error {
	p.keyMu.Lock()
	defer p.keyMu.Unlock()
	var errs []error
	for _, d := range p.keys {
		errs = append(errs, p.revokeKey(d.Key))
	}
	clear(p.keys)
	return errors.Join(errs...)
}

// revokeKey takes one key back and waits a moment for who reads with it.
func (p *pair) revokeKey(key wire.Key) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.c.d.opts.Grace)
	defer cancel()
	err := p.c.d.c.Revoke(ctx, p.world, key)
	if errors.Is(err, region.ErrKey) || errors.Is(err, comm.ErrNotConnected) || errors.Is(err, comm.ErrClosed) {
		// The session took it along.
		return nil
	}
	return err
}
