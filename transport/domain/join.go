package domain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// maxEarly bounds the joins of one peer to domains that do not exist here yet.
const maxEarly = 256

// The intervals while a domain is being made.
const (
	// again is the interval at which a join is sent again to a peer that has not answered.
	again = time.Second
	// soonest and latest bound the pauses between two attempts to connect.
	soonest = 10 * time.Millisecond
	latest  = 500 * time.Millisecond
)

// NewComm makes a domain of the ranks of a list. Each of them calls NewComm with the same
// name and list; a rank of the domain is an index in the list. NewComm connects every pair,
// and returns when all ranks have joined. The name can't be reused until the domain is
// destroyed.
//
// Errors: ErrNotMember for a list without our own rank; ErrName; ErrList, as a ListError if
// a peer has another list; a MissingError if the context ends first; comm.ErrClosed.
func (d *Domains) NewComm(ctx context.Context, name string, ranks []wire.Rank) (*Comm, error) {
	me, err := d.check(name, ranks)
	if err != nil {
		return nil, err
	}
	c := &Comm{
		d: d, name: name, ranks: slices.Clone(ranks), me: me, byWorld: map[wire.Rank]*pair{}, forming: true,
		formed: make(chan struct{}), broken: make(chan struct{}),
	}
	c.life, c.cancel = context.WithCancel(d.life)
	for i, r := range ranks {
		p := newPair(c, Rank(i), r)
		c.pairs = append(c.pairs, p)
		c.byWorld[r] = p
	}
	early, err := d.register(c)
	if err != nil {
		c.cancel()
		return nil, err
	}
	for j, in := range early {
		c.joinedBy(j, in)
	}
	if err = c.gather(ctx); err != nil {
		return nil, errors.Join(err, c.Destroy()) //nolint:contextcheck // cleanup must not depend on the context
	}
	d.log.Info("domain created", zap.String("name", name), zap.Int("ranks", len(ranks)))
	return c, nil
}

// check validates a name and a list, and returns our rank in the domain.
func (d *Domains) check(name string, ranks []wire.Rank) (Rank, error) {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
		return 0, fmt.Errorf("make domain %.200q: a name must have 1 to %d bytes of UTF-8: %w", name, MaxName, ErrName)
	}
	sorted := slices.Sorted(slices.Values(ranks))
	if len(ranks) == 0 || len(ranks) > MaxRanks || len(slices.Compact(sorted)) != len(ranks) {
		return 0, fmt.Errorf("make domain %q: ranks %s must be 1 to %d different ranks: %w", name, showList(ranks), MaxRanks, ErrList)
	}
	me := slices.Index(ranks, d.c.Rank())
	if me < 0 {
		return 0, fmt.Errorf("make domain %q: %s is not in ranks %s: %w", name, d.c.Rank(), showList(ranks), ErrNotMember)
	}
	return Rank(me), nil
}

// register assigns a domain its number and name, and returns the joins to it that have come
// before.
func (d *Domains) register(c *Comm) (map[joiner]join, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("make domain %q: %w", c.name, comm.ErrClosed)
	}
	if d.byName[c.name] != nil {
		return nil, fmt.Errorf("make domain %q: it already exists: %w", c.name, ErrName)
	}
	d.last++
	c.index = d.last
	d.byIndex[c.index], d.byName[c.name] = c, c
	early := map[joiner]join{}
	for j, in := range d.early {
		if in.name == c.name {
			early[j] = in
			delete(d.early, j)
		}
	}
	return early, nil
}

// gather exchanges joins with every peer.
func (c *Comm) gather(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.d.opts.Timeout)
	defer cancel()
	c.checkFormed()
	var all sync.WaitGroup
	errs := make([]error, len(c.pairs))
	for i, p := range c.pairs {
		if !p.self {
			all.Go(func() { errs[i] = c.meet(ctx, p) })
		}
	}
	all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.forming {
		return nil
	}
	if c.err != nil {
		return c.err
	}
	return &MissingError{Domain: c.name, Ranks: c.missingLocked(), Err: errors.Join(errs...)}
}

// missingLocked returns the ranks that have not come. If all have come, it returns those
// that have left since: a rank that gave up because others are missing is not reported as
// missing.
//
// +checklocks:c.mu
func (c *Comm) missingLocked() []wire.Rank {
	var never, gone []wire.Rank
	for _, p := range c.pairs {
		switch {
		case !p.came && !p.self:
			never = append(never, p.world)
		case !c.thereLocked(p):
			gone = append(gone, p.world)
		}
	}
	if len(never) == 0 {
		never = gone
	}
	slices.Sort(never)
	return never
}

// meet connects to a peer and sends it our join, repeatedly, until the domain is formed or
// can't be.
func (c *Comm) meet(ctx context.Context, p *pair) error {
	pause := soonest
	for {
		err := c.reach(ctx, p)
		_, wrong := errors.AsType[*control.WrongRankError](err)
		switch {
		case wrong || errors.Is(err, control.ErrAuth) || errors.Is(err, control.ErrCover) || errors.Is(err, comm.ErrClosed):
			c.spoil(fmt.Errorf("make domain %q: %s: %w", c.name, p.world, err))
			return nil
		case err != nil:
			pause = min(2*pause, latest)
		default:
			pause = again
		}
		select {
		case <-c.formed:
		case <-c.broken:
		case <-ctx.Done():
			err = errors.Join(ctx.Err(), err)
		case <-time.After(pause):
			continue
		case <-p.kick:
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.world, err)
		}
		return nil
	}
}

// reach ensures a session with a peer, and joins.
//
// The higher of two ranks connects, so that no two connections cross.
func (c *Comm) reach(ctx context.Context, p *pair) error {
	at, known := c.d.opts.AddressBook[p.world]
	var err error
	if known && c.d.c.Rank() > p.world {
		err = c.d.c.Connect(ctx, p.world, at)
	} else {
		err = c.d.c.Await(ctx, p.world)
	}
	if err != nil {
		return err
	}
	origin, err := c.d.c.Origin(ctx, p.world)
	if err != nil {
		return err
	}
	in := join{name: c.name, ranks: c.ranks, window: uint64(c.d.opts.Window)}
	if err = c.d.c.SendPacket(ctx, p.world, wire.PortDomain, in.encode(opJoin, c.index)); err != nil {
		return err
	}
	c.mu.Lock()
	p.told = origin
	c.mu.Unlock()
	c.checkFormed()
	return nil
}

// thereLocked reports whether both sides know each other, in one session.
//
// +checklocks:c.mu
func (c *Comm) thereLocked(p *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.self || p.joined && p.told == p.origin && p.accepted == joiner{p.origin, p.remote}
}

// checkFormed completes the domain once all ranks have joined.
func (c *Comm) checkFormed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.forming || c.err != nil {
		return
	}
	for _, p := range c.pairs {
		if !c.thereLocked(p) {
			return
		}
	}
	c.forming = false
	close(c.formed)
}

// join handles a Join packet, of a domain that exists already or does not yet.
func (d *Domains) join(from comm.Origin, index uint32, b []byte) error {
	in, err := parseJoin(b)
	if err != nil {
		return err
	}
	if in.window < MinWindow || in.window > MaxWindow {
		return fmt.Errorf("%s joins with an invalid window of %d bytes: %w", from.Rank, in.window, ErrProtocol)
	}
	d.mu.Lock()
	c := d.byName[in.name]
	if c == nil {
		err = d.keepLocked(joiner{from, index}, in)
	}
	d.mu.Unlock()
	if c != nil {
		c.joinedBy(joiner{from, index}, in)
	}
	return err
}

// keepLocked keeps a join for later.
//
// +checklocks:d.mu
func (d *Domains) keepLocked(j joiner, in join) error {
	n := 0
	for other := range d.early {
		if other.from == j.from {
			n++
		}
	}
	if n >= maxEarly {
		return fmt.Errorf("%s joins more than %d domains that don't exist here: %w", j.from.Rank, maxEarly, ErrProtocol)
	}
	d.early[j] = in
	return nil
}

// joinedBy records that a peer has made the domain too, or rejects it if its list differs.
func (c *Comm) joinedBy(j joiner, in join) {
	p := c.byWorld[j.from.Rank]
	if p == nil || !slices.Equal(in.ranks, c.ranks) {
		// The peer may have given up already: we fail when it rejects our list.
		c.reject(j)
		return
	}
	c.mu.Lock()
	p.mu.Lock()
	same := p.origin == j.from && p.remote == j.index
	switch {
	case p.joined && same:
	case c.forming:
		p.joined, p.came = true, true
		p.resetLocked()
		p.origin, p.remote, p.window, p.credit = j.from, j.index, in.window, in.window
	}
	later := !c.forming && !same
	alive := c.err == nil && !c.destroyed
	p.mu.Unlock()
	c.mu.Unlock()
	if alive && !later {
		// A join on its own may belong to an attempt that has been given up since.
		c.d.mail.send(j.from.Rank, appendNumber(nil, opAccept, j.index, uint64(c.index)))
	}
	if later {
		// The peer makes the domain anew, and we have not destroyed ours yet.
		c.d.mu.Lock()
		_ = c.d.keepLocked(j, in)
		c.d.mu.Unlock()
		return
	}
	c.checkFormed()
}

// reject answers a peer that our list differs from its own.
func (c *Comm) reject(j joiner) {
	answer := join{name: c.name, ranks: c.ranks, window: uint64(c.index)}
	c.d.mail.send(j.from.Rank, answer.encode(opReject, j.index))
}

// acceptedBy handles an Accept packet: a current attempt of a peer has our join.
func (c *Comm) acceptedBy(from comm.Origin, b []byte) error {
	n, _, err := parseNumber(b)
	p := c.byWorld[from.Rank]
	if err != nil || p == nil || p.self || n > math.MaxUint32 {
		return errors.Join(err, malformed("accept", b))
	}
	c.mu.Lock()
	p.accepted = joiner{from, uint32(n)}
	c.mu.Unlock()
	c.checkFormed()
	return nil
}

// spoil makes the formation of a domain fail; it reports whether it is the first to do so.
func (c *Comm) spoil(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.forming || c.err != nil {
		return false
	}
	c.err = err
	close(c.broken)
	return true
}

// rejected handles a Reject packet: a peer has another list for the name. It receives the
// same from us.
func (c *Comm) rejected(from comm.Origin, b []byte) error {
	in, err := parseJoin(b)
	if err != nil {
		return err
	}
	if c.byWorld[from.Rank] == nil || in.window > math.MaxUint32 {
		return nil
	}
	if c.spoil(&ListError{Domain: c.name, Peer: from.Rank, Ours: c.ranks, Theirs: in.ranks}) {
		c.reject(joiner{from, uint32(in.window)})
	}
	return nil
}

// leave handles a Leave packet: a peer has destroyed its domain, or has given up making it.
func (d *Domains) leave(j joiner) {
	d.mu.Lock()
	delete(d.early, j)
	d.mu.Unlock()
	d.endPairs(j.from, ErrLeft, func(remote uint32) bool { return remote == j.index })
}

// endPairs fails the pairs of a session for which fn, called with the number of the domain
// at the peer, returns true.
func (d *Domains) endPairs(from comm.Origin, cause error, fn func(remote uint32) bool) {
	for _, c := range d.comms() {
		p := c.byWorld[from.Rank]
		if p == nil || p.self {
			continue
		}
		p.mu.Lock()
		its := p.origin == from && fn(p.remote)
		p.mu.Unlock()
		if its {
			c.part(p, cause)
		}
	}
}

// part fails a pair. While the domain is being made, it resets the pair to one whose peer
// has not come yet.
func (c *Comm) part(p *pair, err error) {
	c.mu.Lock()
	forming := c.forming
	if forming {
		p.joined = false
	}
	c.mu.Unlock()
	if !forming {
		p.fail(err)
		return
	}
	select {
	case p.kick <- struct{}{}:
	default:
	}
}
