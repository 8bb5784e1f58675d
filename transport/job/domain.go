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

// Domain is some ranks of a job, numbered from 0 in the order of their list. What
// all ranks do together is called by one goroutine at a time.
type Domain struct {
	job  *Job
	name string
	// ranks are those of the world.
	ranks  []int
	comm   *domain.Comm
	fabric fabric.Fabric

	mu sync.Mutex
	// +checklocks:mu
	destroyed bool
	// +checklocks:mu
	windows *Windows
	// round is the exchange that is under way, until it is complete.
	// +checklocks:mu
	round *round
	// broken is why nothing can be done together any more.
	// +checklocks:mu
	broken error
}

// newDomain makes a domain of some ranks of the world.
func (j *Job) newDomain(ctx context.Context, name string, ranks []int) (*Domain, error) {
	list := make([]wire.Rank, len(ranks))
	for i, r := range ranks {
		if r < 0 || r >= j.opts.World {
			return nil, fmt.Errorf("domain %q: rank %d of %d: %w", name, r, j.opts.World, ErrOptions)
		}
		list[i] = wire.Rank(r)
	}
	d := &Domain{job: j, name: name, ranks: slices.Clone(ranks)}
	var err error
	if d.comm, err = j.domains.NewComm(ctx, name, list); err != nil {
		return nil, err
	}
	o := fabric.Options{Streams: j.opts.Backend == TCP, Host: j.opts.Host, Timeout: j.opts.Timeout}
	if d.fabric, err = fabric.Over(ctx, d.comm, o); err == nil && j.opts.Backend == SHM && !d.fabric.Mapped() {
		err = fmt.Errorf("domain %q: the ranks share no memory: %w", name, ErrBackend)
	}
	if err == nil {
		err = j.keep(d)
	}
	if err != nil {
		return nil, errors.Join(err, d.Destroy()) //nolint:contextcheck // the end is not the context's
	}
	return d, nil
}

// Rank is our own in the domain.
func (d *Domain) Rank() int { return int(d.comm.Rank()) }

// Size is the number of ranks.
func (d *Domain) Size() int { return len(d.ranks) }

// Comm sends to and receives from the ranks of the domain.
func (d *Domain) Comm() *domain.Comm { return d.comm }

// Fabric returns what groups of collectives are made over. It belongs to the domain,
// which closes it. Each group has links of its own, so its calls and what the domain
// does together may go on at the same time; New of a group is one of the latter.
func (d *Domain) Fabric() fabric.Fabric { return d.fabric }

// Derive makes a domain of some ranks of this one, which all of them call with
// the same name and list.
//
// Errors: domain.ErrNotMember for a list without ourselves; domain.ErrName,
// domain.ErrList; a domain.MissingError.
func (d *Domain) Derive(ctx context.Context, name string, ranks []int) (*Domain, error) {
	world := make([]int, len(ranks))
	for i, r := range ranks {
		if r < 0 || r >= len(d.ranks) {
			return nil, fmt.Errorf("domain %q: rank %d of %d: %w", name, r, len(d.ranks), ErrOptions)
		}
		world[i] = d.ranks[r]
	}
	ctx, cancel := d.job.within(ctx)
	defer cancel()
	return d.job.newDomain(ctx, d.name+"/"+name, world)
}

// Destroy ends the domain with its windows. Destroying twice is harmless.
func (d *Domain) Destroy() error {
	var errs []error
	if d.fabric != nil {
		// Who waits in it lets the lock go.
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

// Barrier returns when all ranks have called it. After an error that names the
// ranks that are missing it can be called again, and is the same barrier.
//
// Errors: a fabric.MissingError when the context or the job's timeout ends;
// fabric.ErrLink for a rank that is gone; ErrClosed.
func (d *Domain) Barrier(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.exchangeLocked(ctx, kindBarrier, func(int) []byte { return nil })
	return err
}

// exchangeKind is the kind of what ranks do together.
type exchangeKind byte

const (
	kindBarrier exchangeKind = iota + 1
	kindWindows
	kindRelease
)

// cell is the bytes that one rank sends to another in an exchange: the kind, the
// length and up to cellRoom bytes.
const (
	cell     = 64
	cellRoom = cell - 2
)

// round is an exchange: each rank has bytes for each.
type round struct {
	kind exchangeKind
	out  [][]byte
	in   [][]byte
	// sent and got are how much of each has gone and come.
	sent, got []int
	want      []fabric.Want
}

// exchangeLocked sends each rank some bytes and returns what they have sent. A
// barrier that a context has ended goes on with the next call; after any other
// exchange that fails there is nothing to go on with.
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
		return nil, fmt.Errorf("domain %q: the barrier before has not been completed: %w", d.name, fabric.ErrProtocol)
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
	r := &round{kind: kind, out: make([][]byte, n), in: make([][]byte, n), sent: make([]int, n), got: make([]int, n)}
	for i := range n {
		p := bring(i)
		text := append([]byte{byte(kind), byte(len(p))}, p...)
		r.out[i] = append(text, make([]byte, cell-len(text))...)
		r.in[i] = make([]byte, cell)
	}
	return r
}

// step moves what can be moved, and notes what is waited for.
func (r *round) step(f fabric.Fabric) (moved bool, err error) {
	r.want = r.want[:0]
	for i := range r.out {
		l := f.Link(plan.Rank(i))
		if l == nil {
			copy(r.in[i], r.out[i])
			continue
		}
		for r.sent[i] < cell {
			n, serr := l.TrySend(r.out[i][r.sent[i]:], nil)
			if serr != nil {
				return false, serr
			}
			r.sent[i] += n
			if n == 0 {
				break
			}
			moved = true
		}
		for r.got[i] < cell {
			n, rerr := l.TryReceive(r.in[i][r.got[i]:])
			if rerr != nil {
				return false, rerr
			}
			r.got[i] += n
			if n == 0 {
				break
			}
			moved = true
		}
		if r.sent[i] < cell || r.got[i] < cell {
			r.want = append(r.want, fabric.Want{Peer: plan.Rank(i), Send: r.sent[i] < cell, Receive: r.got[i] < cell})
		}
	}
	return moved, nil
}

// missing are the ranks that have not come.
func (r *round) missing() (ranks []plan.Rank) {
	for _, w := range r.want {
		ranks = append(ranks, w.Peer)
	}
	return ranks
}

// result returns what the ranks have sent.
func (r *round) result(kind exchangeKind) ([][]byte, error) {
	for i, p := range r.in {
		if exchangeKind(p[0]) != kind || p[1] > cellRoom {
			return nil, fmt.Errorf("rank %d does something else: %w", i, fabric.ErrProtocol)
		}
		r.in[i] = p[2 : 2+p[1]]
	}
	return r.in, nil
}
