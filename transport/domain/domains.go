package domain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Domains holds the domains of one communicator. Its methods may be called from any
// goroutine.
type Domains struct {
	c    *comm.Communicator
	opts Options
	log  *zap.Logger
	mail mail
	// requests are requests of Send and Recv, for reuse.
	requests sync.Pool
	chases   *chases
	stats    counters
	// life ends with Close.
	life    context.Context //nolint:containedctx // it is the lifetime of the domains, from New to Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.RWMutex
	// +checklocks:mu
	closed bool
	// last is the number of the latest domain: numbers are not reused.
	// +checklocks:mu
	last uint32
	// +checklocks:mu
	byIndex map[uint32]*Comm
	// +checklocks:mu
	byName map[string]*Comm
	// early holds joins to domains that do not exist here yet.
	// +checklocks:mu
	early map[joiner]join
}

// joiner identifies a domain at a peer that has joined.
type joiner struct {
	from  comm.Origin
	index uint32
}

type counters struct{ eager, rendezvous, unexpected, keys atomic.Uint64 }

// Stats counts the operations of all domains of a communicator.
type Stats struct {
	// Eager counts the messages that were sent immediately, Rendezvous those that waited
	// for their receiver to fetch them or ask for them.
	Eager      uint64 `json:"eager"`
	Rendezvous uint64 `json:"rendezvous"`
	// Unexpected counts the messages that came before their receive.
	Unexpected uint64 `json:"unexpected"`
	// Keys counts the grants of a buffer to a peer.
	Keys uint64 `json:"keys"`
}

// Stats returns a snapshot of the counters.
func (d *Domains) Stats() Stats {
	s := &d.stats
	return Stats{
		Eager: s.eager.Load(), Rendezvous: s.rendezvous.Load(), Unexpected: s.unexpected.Load(), Keys: s.keys.Load(),
	}
}

// New prepares a communicator for domains: call it before Listen and Connect, and at most
// once until Close. The communicator is borrowed: close it after the domains.
func New(c *comm.Communicator, o Options) (*Domains, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := &Domains{
		c: c, opts: o, log: o.Logger.Named("domain"),
		byIndex: map[uint32]*Comm{}, byName: map[string]*Comm{}, early: map[joiner]join{},
	}
	d.mail = mail{d: d, waiting: map[wire.Rank][][]byte{}}
	d.chases = newChases(d)
	d.requests.New = func() any { return newRequest() }
	d.life, d.cancel = context.WithCancel(context.Background())
	if err := c.Handle(wire.PortDomain, (*port)(d)); err != nil {
		d.cancel()
		return nil, fmt.Errorf("domains: %w", err)
	}
	return d, nil
}

// Close destroys every domain. When it returns, nothing of them runs any more. A second
// Close has no effect.
func (d *Domains) Close() error {
	d.mu.Lock()
	already := d.closed
	d.closed = true
	d.mu.Unlock()
	if already {
		return nil
	}
	var errs []error
	for _, c := range d.comms() {
		errs = append(errs, c.Destroy())
	}
	d.c.Unhandle(wire.PortDomain)
	d.mail.close()
	d.cancel()
	d.running.Wait()
	return errors.Join(errs...)
}

// comms returns the current domains.
func (d *Domains) comms() []*Comm {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Values(d.byIndex))
}

// port implements the handler of the domains' port.
type port Domains

// Packet handles a packet of a peer.
func (h *port) Packet(from comm.Origin, b []byte) error {
	d := (*Domains)(h)
	o, index, err := parseHead(b)
	if err != nil {
		return err
	}
	switch o {
	case opJoin:
		return d.join(from, index, b)
	case opLeave:
		if len(b) != headSize {
			return malformed("leave", b)
		}
		d.leave(joiner{from, index})
		return nil
	case opProbe, opCycle:
		return d.chase(from, o, b)
	default:
		return d.toDomain(from, o, index, b)
	}
}

// toDomain dispatches a packet that belongs to one domain.
func (d *Domains) toDomain(from comm.Origin, o op, index uint32, b []byte) error {
	if err := d.mail.check(from.Rank); err != nil {
		return err
	}
	c, err := d.find(from, index)
	if c == nil {
		return err
	}
	switch o {
	case opReject:
		return c.rejected(from, b)
	case opAccept:
		return c.acceptedBy(from, b)
	default:
	}
	p := c.byWorld[from.Rank]
	if p == nil || p.self {
		return fmt.Errorf("%s, which is not a member, sent a packet to domain %q: %w", from.Rank, c.name, ErrNotMember)
	}
	return p.packet(from, o, b)
}

// find returns the domain with a number; nil without an error for one that was destroyed.
func (d *Domains) find(from comm.Origin, index uint32) (*Comm, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if index == 0 || index > d.last {
		return nil, fmt.Errorf("%s sent a packet to domain number %d, which never existed: %w", from.Rank, index, ErrProtocol)
	}
	return d.byIndex[index], nil
}

func (d *Domains) chase(from comm.Origin, o op, b []byte) error {
	in, err := parseChase(b)
	if err != nil {
		return err
	}
	if o == opProbe {
		return errors.Join(d.mail.check(from.Rank), d.chases.probe(from.Rank, in))
	}
	d.chases.found(in)
	return nil
}

// packet handles a packet of one pair. One of an earlier session is checked, and ignored.
func (p *pair) packet(from comm.Origin, o op, b []byte) error {
	var d done
	var n uint64
	var rest []byte
	var err error
	switch o {
	case opMessage: // parsed into the memory of an earlier message
	case opDone:
		d, err = parseDone(b)
	default:
		n, rest, err = parseNumber(b)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hearsLocked(from) {
		return nil
	}
	switch o {
	case opMessage:
		return p.messageLocked(b)
	case opDone:
		p.doneLocked(&d)
		return nil
	case opData:
		return p.dataLocked(n, rest)
	case opCredit:
		return p.creditedLocked(n)
	case opWithdraw:
		p.withdrawnLocked(n)
		return nil
	case opAsk:
		return p.askedLocked(n)
	default:
		return p.flushLocked(n)
	}
}

// Ended fails the pairs of a session.
func (h *port) Ended(from comm.Origin, cause error) {
	d := (*Domains)(h)
	d.mu.Lock()
	maps.DeleteFunc(d.early, func(j joiner, _ join) bool { return j.from == from })
	d.mu.Unlock()
	d.endPairs(from, cause, func(uint32) bool { return true })
}
