package fabric

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/internal/gate"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// DefaultTimeout bounds the wait for the other ranks in operations that all take part in.
const DefaultTimeout = 30 * time.Second

// Options configures Over.
type Options struct {
	// Streams leaves memory unmapped: ranks of one host use sockets too.
	Streams bool
	// Host names our host; ranks of hosts with different names share no memory. If empty,
	// the kernel's boot id is used.
	Host string
	// Timeout bounds the time until a rank comes to Over, Share, Reform and Duplicate.
	// Default 30 s.
	Timeout time.Duration
}

// over is a fabric over a domain.
type over struct {
	*node
	opts  Options
	c     *comm.Communicator
	reg   *registry
	name  string
	nonce uint64
	// worlds are the ranks of the job, which do not change, and nodes their hosts.
	worlds []wire.Rank
	nodes  []int
	// mapped is the value of Fabric.Mapped. If true, local are the ranks of our host in
	// ascending order, including our own.
	mapped   bool
	local    []plan.Rank
	segments segments
	// seated is set when states no longer change. No rank sleeps before that.
	seated atomic.Bool
	// links is indexed by rank, and others has the ranks that have one: all but our own.
	links  []*link
	others []plan.Rank
	// pipes are used by sockets to pass pages without copying.
	pipes pages.Pool
	// event wakes a sleeper in poll; -1 where no rank sleeps there.
	event int
	polls []unix.PollFd
	// gate is entered by users of links and states, and shut by Close.
	gate   gate.Gate
	series rendezvousSeries
	// changed holds a token when something has arrived for a rendezvous.
	changed chan struct{}
	// parent is the fabric that Duplicate was called on; nil for the fabric of a domain.
	parent *over
	copies copies
	// life ends with Close.
	life    context.Context //nolint:containedctx // it is the lifetime of the fabric, from Over to Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
	ended   error
}

// Over connects the ranks of a domain. All of them must call it. The domain is borrowed,
// and can still send and receive. A domain has one fabric at a time.
//
// Errors: a MissingError; those of domain and comm.
func Over(ctx context.Context, d *domain.Comm, o Options) (Fabric, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if d.Size() > plan.MaxRanks {
		return nil, fmt.Errorf("fabric over domain %q of %d ranks: must have 1 to %d", d.Name(), d.Size(), plan.MaxRanks)
	}
	f, err := newOver(d.Communicator(), d.Name(), plan.Rank(d.Rank()), d.Ranks(), o)
	if err == nil {
		err = f.reg.add(f)
	}
	if err != nil {
		return nil, fmt.Errorf("fabric over domain %q: %w", d.Name(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err = f.form(ctx); err != nil {
		return nil, fmt.Errorf("fabric over domain %q: %w", d.Name(), errors.Join(err, f.Close())) //nolint:contextcheck // cleanup must not depend on the context
	}
	return f, nil
}

func newOver(c *comm.Communicator, name string, me plan.Rank, ranks []wire.Rank, o Options) (*over, error) {
	n := len(ranks)
	f := &over{opts: o, c: c, name: name, worlds: ranks, nodes: make([]int, n), event: -1, changed: make(chan struct{}, 1)}
	var number [8]byte
	// Read never fails: the runtime ends the process if the kernel has no random bytes.
	_, _ = rand.Read(number[:])
	f.nonce = binary.LittleEndian.Uint64(number[:]) | 1
	seats := make([]*rankState, n)
	seats[me] = &rankState{}
	f.node = newNode(me, seats)
	f.bells = f
	f.links = make([]*link, n)
	f.series.sent, f.series.peers = map[uint32][][]byte{}, make([]peer, n)
	for r := range n {
		if r != int(f.me) {
			f.links[r] = &link{o: f, peer: plan.Rank(r)}
			f.others = append(f.others, plan.Rank(r))
		}
	}
	f.polls = make([]unix.PollFd, 0, n+1)
	reg, err := registryOf(f.c)
	if err != nil {
		return nil, err
	}
	f.reg = reg
	f.life, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// rankOf returns the rank in the fabric of a rank of the job.
func (o *over) rankOf(world wire.Rank) (plan.Rank, bool) {
	i := slices.Index(o.worlds, world)
	return plan.Rank(i), i >= 0
}

// setSpin makes waiters poll before they sleep, unless this host has more ranks than
// processors. It counts the processors of all ranks, as each may have one of its own.
func (o *over) setSpin(all []facts) {
	here, cpus := 0, uint64(0)
	for r, n := range o.nodes {
		if n == o.nodes[o.me] {
			here++
			cpus |= all[r].cpus
		}
	}
	if here <= bits.OnesCount64(cpus) {
		o.spin = spin
	}
}

// hearLost records the loss of a rank. It is called by the goroutine that receives from the
// rank, possibly while the fabric is still being formed.
func (o *over) hearLost(of plan.Rank, cause error) {
	o.note(of, cause)
	if o.seated.Load() {
		o.wake(o.me)
	}
}

// Nodes returns the host of each rank.
func (o *over) Nodes() []int { return slices.Clone(o.nodes) }

// Mapped reports whether ranks of one host can access each other's memory.
func (o *over) Mapped() bool { return o.mapped }

// Link returns the stream with a peer.
func (o *over) Link(peer plan.Rank) Link {
	if peer == o.me {
		return nil
	}
	return o.links[peer]
}

// Signals returns the counters of the ranks of this host.
func (o *over) Signals() Signals {
	if !o.mapped {
		return nil
	}
	return (*signals)(o)
}

// Interrupt makes a pending wait return.
func (o *over) Interrupt() {
	if o.gate.Enter() {
		o.node.Interrupt()
		o.gate.Leave()
	}
}

// Reform makes all links anew, together with all other ranks.
func (o *over) Reform(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.opts.Timeout)
	defer cancel()
	for {
		if !o.gate.Enter() {
			return ErrClosed
		}
		err := o.reform(ctx)
		o.gate.Leave()
		if !errors.Is(err, errAnew) {
			return err
		}
	}
}

func (o *over) reform(ctx context.Context) error {
	o.series.begin()
	for _, r := range o.others {
		o.links[r].end()
		o.lose(r, errAnew)
	}
	if _, err := o.rendezvous(ctx, func(plan.Rank) []byte { return []byte{} }); err != nil {
		return err
	}
	for r := range o.gone {
		o.gone[r].Store(nil)
	}
	err := o.connect(ctx)
	if err != nil {
		for _, r := range o.others {
			o.lose(r, errAnew)
		}
	}
	return err
}

// Close ends all links. Peers still receive the bytes sent before.
func (o *over) Close() error {
	o.closing.Do(func() {
		copies := o.copies.close()
		if o.parent != nil {
			o.parent.copies.remove(o)
		}
		o.bye()
		o.gate.Shut()
		o.node.Interrupt()
		o.cancel()
		o.gate.Drain()
		o.reg.remove(o)
		o.running.Wait()
		for _, r := range o.others {
			o.links[r].end()
		}
		o.pipes.Close()
		if o.event >= 0 {
			o.ended = unix.Close(o.event)
		}
		o.ended = errors.Join(copies, o.ended, o.segments.close())
	})
	return o.ended
}

// bye announces the close to the other ranks. A rank that misses it sees the end of the
// stream or of the session.
func (o *over) bye() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o.series.mu.Lock()
	peers := slices.Clone(o.series.peers)
	epoch := o.series.epoch
	o.series.mu.Unlock()
	for r, p := range peers {
		if r != int(o.me) && p.nonce != 0 && !p.left {
			text := (&packet{kind: kindBye, have: true, epoch: epoch, from: o.nonce, to: p.nonce, name: o.name}).encode()
			_ = o.c.SendPacket(ctx, o.worlds[r], wire.PortFabric, text)
		}
	}
}
