package domain

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// chases detects cycles of ranks that wait for each other: see the package comment.
type chases struct {
	d     *Domains
	nonce atomic.Uint64

	mu sync.Mutex
	// ours maps our probes to the waiting requests.
	// +checklocks:mu
	ours map[uint64]*Request
	// seen is the newest probe of each rank that was passed on.
	// +checklocks:mu
	seen map[wire.Rank]uint64
}

// maxSeen bounds the ranks in seen; no job has more.
const maxSeen = 1 << 16

func newChases(d *Domains) *chases {
	c := &chases{d: d, ours: map[uint64]*Request{}, seen: map[wire.Rank]uint64{}}
	// Probes of an earlier process of this rank have smaller numbers.
	c.nonce.Store(uint64(time.Now().UnixNano()))
	return c
}

// begin sends a probe to the rank that a request waits for.
func (c *chases) begin(r *Request) {
	me := c.d.c.Rank()
	if r.pair.self {
		r.cycle.Store(&[]wire.Rank{me, me})
		return
	}
	n := c.nonce.Add(1)
	c.mu.Lock()
	delete(c.ours, r.probe)
	c.ours[n], r.probe = r, n
	c.mu.Unlock()
	c.d.mail.send(r.pair.world, (&chase{nonce: n, path: []wire.Rank{me}}).encode(opProbe))
}

// forget removes the probe of a request.
func (c *chases) forget(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ours, r.probe)
}

// probe passes a probe on to the ranks that we wait for, or reports that it has returned to
// its origin.
func (c *chases) probe(from wire.Rank, in chase) error {
	me, first := c.d.c.Rank(), in.path[0]
	if in.path[len(in.path)-1] != from || slices.Contains(in.path, me) {
		return malformed("probe", nil)
	}
	c.mu.Lock()
	if c.seen[first] >= in.nonce || len(in.path) == maxPath {
		c.mu.Unlock()
		return nil
	}
	if len(c.seen) >= maxSeen {
		clear(c.seen)
	}
	c.seen[first] = in.nonce
	c.mu.Unlock()
	out := chase{nonce: in.nonce, path: append(slices.Clone(in.path), me)}
	for _, to := range c.d.waitsFor() {
		switch {
		case to == first:
			c.d.mail.send(to, out.encode(opCycle))
		case !slices.Contains(out.path, to):
			c.d.mail.send(to, out.encode(opProbe))
		}
	}
	return nil
}

// found handles a Cycle packet: one of our probes has returned.
func (c *chases) found(in chase) {
	me := c.d.c.Rank()
	if in.path[0] != me {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.ours[in.nonce]; r != nil {
		cycle := append(slices.Clone(in.path), me)
		r.cycle.Store(&cycle)
	}
}

// waitsFor returns the ranks that any goroutine of this rank waits for.
func (d *Domains) waitsFor() []wire.Rank {
	found := map[wire.Rank]bool{}
	for _, c := range d.comms() {
		for _, p := range c.pairs {
			if !p.self && p.waited() {
				found[p.world] = true
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

// waited reports whether any goroutine waits for the peer.
func (p *pair) waited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.posted.all() {
		if r.waiting.Load() > 0 {
			return true
		}
	}
	for _, r := range p.sending {
		if r.waiting.Load() > 0 {
			return true
		}
	}
	for r := range p.out.All() {
		if r.waiting.Load() > 0 {
			return true
		}
	}
	return false
}
