package domain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// pair is the state of this rank and one peer in a domain. It shares no lock with other
// pairs.
type pair struct {
	c     *Comm
	rank  Rank
	world wire.Rank
	self  bool
	// joined reports that the peer has made the domain; told is the session in which we
	// have sent it our join; both are guarded by c.mu. came remains true if a peer that has
	// joined gives up before we do.
	joined bool
	came   bool
	told   comm.Origin
	// accepted is the attempt of the peer that knows of ours; guarded by c.mu.
	accepted joiner
	// kick wakes NewComm to check again.
	kick chan struct{}

	// keyMu is held while a key is granted or revoked, and then no other lock is.
	keyMu sync.Mutex
	// keys holds the keys granted to the peer, one for each buffer.
	// +checklocks:keyMu
	keys map[*region.Buffer]wire.Descriptor
	// sweepAt is the number of keys at which keys of closed buffers are removed.
	// +checklocks:keyMu
	sweepAt int

	mu sync.Mutex
	// origin is the session, remote the number of the domain at the peer, and window the
	// size of the peer's window.
	// +checklocks:mu
	origin comm.Origin
	// +checklocks:mu
	remote uint32
	// +checklocks:mu
	window uint64
	// err is the reason why the pair has ended.
	// +checklocks:mu
	err error

	// State of sending: credit is the rest of the peer's window, out holds requests that
	// are not completely written, sending those that the peer must answer.
	// +checklocks:mu
	credit uint64
	// +checklocks:mu
	out queue.Queue[*Request]
	// +checklocks:mu
	pumping bool
	// +checklocks:mu
	last uint64
	// +checklocks:mu
	sending map[uint64]*Request
	// late holds the mismatches of messages whose send was complete.
	// +checklocks:mu
	late []error
	// scratch is the buffer in which packets are built.
	// +checklocks:mu
	scratch scratch

	// State of receiving: held is the used part of our window, owed the part of it that is
	// free again without the peer knowing it.
	// +checklocks:mu
	posted lanes[*Request]
	// +checklocks:mu
	unexpected lanes[*message]
	// arriving are messages that are not complete.
	// +checklocks:mu
	arriving map[uint64]*message
	// active are receives that are matched with a message.
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

// scratch is reused memory.
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

// hearsLocked reports whether a packet received in a session is for the current state of
// the pair.
//
// +checklocks:p.mu
func (p *pair) hearsLocked(from comm.Origin) bool { return p.err == nil && p.origin == from }

// fail ends the pair: every request gets an error. A message that has arrived completely
// can still be received.
func (p *pair) fail(err error) {
	if p.shut(err) {
		p.abandon(err)
	}
}

// shut prevents further operations from starting or completing; it reports whether it is
// the first call.
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
	all = append(all, p.out.Drain()...)
	all = slices.AppendSeq(all, maps.Values(p.sending))
	all = slices.AppendSeq(all, maps.Keys(p.active))
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

// purge drops the messages that could still be received.
func (p *pair) purge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unexpected.drain()
}

// resetLocked drops the state of an earlier session.
//
// +checklocks:p.mu
func (p *pair) resetLocked() {
	p.unexpected.drain()
	clear(p.arriving)
	p.flushes, p.held, p.owed = nil, 0, 0
}

// minSweep is the minimum of sweepAt.
const minSweep = 64

// places returns the places of views for the peer. The first use of a buffer grants the
// peer a key, which is valid until the buffer is closed.
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

// shareLocked grants the peer a key to a buffer.
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

// sweepLocked removes the keys to buffers that are closed.
//
// +checklocks:p.keyMu
func (p *pair) sweepLocked(ctx context.Context) {
	for b, d := range p.keys {
		if b.Hold() == nil {
			b.Drop()
			continue
		}
		// A key to a closed buffer no longer exists: revoking it can't fail.
		_ = p.c.d.c.Revoke(ctx, p.world, d.Key)
		delete(p.keys, b)
	}
	p.sweepAt = max(minSweep, 2*len(p.keys))
}

// revoke revokes the keys to the buffers of views, immediately. An error means that the
// peer was reading, and may do so for a moment.
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

// revokeAll revokes every key.
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

// revokeKey revokes one key and waits up to Options.Grace for reads in progress.
func (p *pair) revokeKey(key wire.Key) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.c.d.opts.Grace)
	defer cancel()
	err := p.c.d.c.Revoke(ctx, p.world, key)
	if errors.Is(err, region.ErrKey) || errors.Is(err, comm.ErrNotConnected) || errors.Is(err, comm.ErrClosed) {
		// The key ended with its session.
		return nil
	}
	return err
}
