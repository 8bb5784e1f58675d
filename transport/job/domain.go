package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Domain is a set of ranks of a job, numbered from 0 in the order of their list. Operations
// in which all ranks take part are called by one goroutine at a time.
type Domain struct {
	job  *Job
	name string
	// ranks are the ranks in the world.
	ranks  []int
	comm   *domain.Comm
	fabric fabric.Fabric

	mu sync.Mutex
	// +checklocks:mu
	destroyed bool
	// +checklocks:mu
	windows *Windows
	// round is the exchange in progress, until it is complete.
	// +checklocks:mu
	round *round
	// broken is the error after which no exchange is possible any more.
	// +checklocks:mu
	broken error
}

// newDomain makes a domain of some ranks of the world.
func (j *Job) newDomain(ctx context.Context, name string, ranks []int) (*Domain, error) {
	list := make([]wire.Rank, len(ranks))
	for i, r := range ranks {
		list[i] = wire.Rank(r)
	}
	d := &Domain{job: j, name: name, ranks: ranks}
	var err error
	if d.comm, err = j.domains.NewComm(ctx, name, list); err != nil {
		return nil, err
	}
	o := fabric.Options{Streams: j.opts.Backend == TCP, Host: j.opts.Host, Timeout: j.opts.Timeout}
	if d.fabric, err = fabric.Over(ctx, d.comm, o); err == nil && j.opts.Backend == SHM && !d.fabric.Mapped() {
		err = fmt.Errorf("domain %q: the ranks can't share memory: %w", name, ErrBackend)
	}
	if err == nil {
		err = j.keep(d)
	}
	if err != nil {
		return nil, errors.Join(err, d.Destroy()) //nolint:contextcheck // cleanup must not depend on the context
	}
	return d, nil
}

// Rank returns our own rank in the domain.
func (d *Domain) Rank() int { return int(d.comm.Rank()) }

// Size returns the number of ranks.
func (d *Domain) Size() int { return len(d.ranks) }

// Comm returns the domain for messages between its ranks.
func (d *Domain) Comm() *domain.Comm { return d.comm }

// Fabric returns the fabric over which groups of collectives are made. It belongs to the
// domain, which closes it. Each group has links of its own, so its calls may run
// concurrently with operations of the domain; New of a group counts as an operation of the
// domain.
func (d *Domain) Fabric() fabric.Fabric { return d.fabric }

// Derive makes a domain of some ranks of this one. All of them call it with the same name
// and list.
//
// Errors: domain.ErrNotMember for a list without our own rank; domain.ErrName,
// domain.ErrList; a domain.MissingError.
func (d *Domain) Derive(ctx context.Context, name string, ranks []int) (*Domain, error) {
	world := make([]int, len(ranks))
	for i, r := range ranks {
		if r < 0 || r >= len(d.ranks) {
			return nil, fmt.Errorf("domain %q: rank %d is not one of the %d ranks: %w", name, r, len(d.ranks), ErrOptions)
		}
		world[i] = d.ranks[r]
	}
	ctx, cancel := d.job.within(ctx)
	defer cancel()
	return d.job.newDomain(ctx, d.name+"/"+name, world)
}

// Destroy ends the domain and its windows. A second Destroy has no effect.
func (d *Domain) Destroy() error {
	var errs []error
	if d.fabric != nil {
		// A call that waits in the fabric then releases the lock.
		errs = append(errs, d.fabric.Close())
	}
	d.mu.Lock()
	already, w := d.destroyed, d.windows
	d.destroyed, d.windows = true, nil
	d.mu.Unlock()
	if already {
		return nil
	}
	if w != nil {
		errs = append(errs, w.drop())
	}
	if d.comm != nil {
		errs = append(errs, d.comm.Destroy())
	}
	return errors.Join(errs...)
}

// Barrier returns when all ranks have called it. After an error that names the missing
// ranks it can be called again, and continues the same barrier.
//
// Errors: a fabric.MissingError when the context or the job's timeout ends; fabric.ErrLink
// for a rank that has ended; ErrClosed.
func (d *Domain) Barrier(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.exchangeLocked(ctx, kindBarrier, func(int) []byte { return nil })
	return err
}

// exchangeKind is the kind of an exchange between the ranks.
type exchangeKind byte

const (
	kindBarrier exchangeKind = iota + 1
	kindWindows
	kindRelease
)

// cell is the number of bytes that one rank sends to another in an exchange: the kind, the
// length and up to cellRoom bytes.
const (
	cell     = 64
	cellRoom = cell - 2
)

// round is an exchange: each rank sends some bytes to each other rank.
type round struct {
	kind exchangeKind
	in   [][]byte
	// out holds what is not sent to each rank yet, and rest the part of in that has not been
	// received.
	out, rest [][]byte
	want      []fabric.Want
}

// exchangeLocked sends some bytes to each rank and returns the bytes that they have sent. A
// barrier that a context has ended continues with the next call; any other failed exchange
// breaks the domain.
//
// +checklocks:d.mu
func (d *Domain) exchangeLocked(ctx context.Context, kind exchangeKind, bring func(to int) []byte) ([][]byte, error) {
	if d.destroyed {
		return nil, ErrClosed
	}
	if d.broken != nil {
		return nil, d.broken
	}
	got, err := d.tryExchangeLocked(ctx, kind, bring)
	if err != nil && (kind != kindBarrier || errors.Is(err, fabric.ErrProtocol)) {
		d.broken = err
	}
	return got, err
}

// +checklocks:d.mu
func (d *Domain) tryExchangeLocked(ctx context.Context, kind exchangeKind, bring func(to int) []byte) ([][]byte, error) {
	ctx, cancel := d.job.within(ctx)
	defer cancel()
	r := d.round
	if r == nil {
		r = newRound(kind, len(d.ranks), bring)
		d.round = r
	}
	if r.kind != kind {
		return nil, fmt.Errorf("domain %q: the previous barrier has not been completed: %w", d.name, fabric.ErrProtocol)
	}
	for {
		moved, err := r.step(d.fabric)
		if err != nil {
			return nil, fmt.Errorf("domain %q: %w", d.name, err)
		}
		if len(r.want) == 0 {
			break
		}
		if moved {
			continue
		}
		if err = d.fabric.Park(ctx, r.want); err != nil {
			if ctx.Err() != nil {
				err = &fabric.MissingError{Ranks: r.missing(), Err: err}
			}
			return nil, fmt.Errorf("domain %q: %w", d.name, err)
		}
	}
	d.round = nil
	return r.result(kind)
}

func newRound(kind exchangeKind, n int, bring func(to int) []byte) *round {
	r := &round{kind: kind, in: make([][]byte, n), out: make([][]byte, n)}
	for i := range n {
		p := bring(i)
		text := append([]byte{byte(kind), byte(len(p))}, p...)
		r.out[i] = append(text, make([]byte, cell-len(text))...)
		r.in[i] = make([]byte, cell)
	}
	r.rest = slices.Clone(r.in)
	return r
}

// step moves as many bytes as possible, and records what it waits for.
func (r *round) step(f fabric.Fabric) (moved bool, err error) {
	r.want = r.want[:0]
	for i := range r.out {
		l := f.Link(plan.Rank(i))
		if l == nil {
			copy(r.in[i], r.out[i])
			continue
		}
		if len(r.out[i]) > 0 {
			n, serr := l.TrySend(r.out[i], nil)
			if serr != nil {
				return false, serr
			}
			r.out[i], moved = r.out[i][n:], moved || n > 0
		}
		if len(r.rest[i]) > 0 {
			n, rerr := l.TryReceive(r.rest[i])
			if rerr != nil {
				return false, rerr
			}
			r.rest[i], moved = r.rest[i][n:], moved || n > 0
		}
		if w := (fabric.Want{Peer: plan.Rank(i), Send: len(r.out[i]) > 0, Receive: len(r.rest[i]) > 0}); w.Send || w.Receive {
			r.want = append(r.want, w)
		}
	}
	return moved, nil
}

// missing returns the ranks that have not come.
func (r *round) missing() (ranks []plan.Rank) {
	for _, w := range r.want {
		ranks = append(ranks, w.Peer)
	}
	return ranks
}

// result returns the bytes that the ranks have sent.
func (r *round) result(kind exchangeKind) ([][]byte, error) {
	for i, p := range r.in {
		if exchangeKind(p[0]) != kind || p[1] > cellRoom {
			return nil, fmt.Errorf("rank %d performs a different operation: %w", i, fabric.ErrProtocol)
		}
		r.in[i] = p[2 : 2+p[1]]
	}
	return r.in, nil
}
