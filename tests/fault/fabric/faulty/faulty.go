package faulty

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// ErrCut is the cause of the loss of a link that was cut.
var ErrCut = errors.New("faulty: cut")

// Faults controls the faults among some ranks. Its methods may be called at any time, from any
// goroutine.
type Faults struct {
	n int
	// all lists the fabrics of each rank, including copies.
	all []*everyFabric
	// pairs is indexed by the sender times the number of ranks, plus the receiver.
	pairs []pair
}

// pair is one direction of a link.
type pair struct {
	// cut is set for the sender's end, and lost for the receiver's, until each of them has been
	// reformed.
	cut, lost atomic.Bool
	// sent counts bytes. cutAt and flipAt are the counts at which the fault happens; 0 means
	// never.
	sent, cutAt, flipAt atomic.Uint64
	// every and left schedule further cuts: left times, each after every bytes.
	every atomic.Uint64
	left  atomic.Int64
	// pause is the time until there is room for one more byte; 0 means no limit. next is the
	// time of the next byte, in nanoseconds since 1970.
	pause, next atomic.Int64
	// lag is the number of receive attempts that find no bytes before one that does, and looks
	// counts the attempts.
	lag, looks atomic.Int64
}

// Wrap injects faults into the fabrics of all ranks of a group.
func Wrap(all []fabric.Fabric) (*Faults, []fabric.Fabric) {
	n := len(all)
	f := &Faults{n: n, pairs: make([]pair, n*n)}
	out := make([]fabric.Fabric, n)
	for i, inner := range all {
		f.all = append(f.all, &everyFabric{})
		out[i] = f.wrap(inner)
	}
	return f, out
}

// wrap makes a fabric of a rank subject to the faults.
func (f *Faults) wrap(inner fabric.Fabric) *ranked {
	r := &ranked{Fabric: inner, faults: f, links: make([]*link, f.n)}
	for peer := range f.n {
		r.links[peer] = &link{ranked: r, peer: plan.Rank(peer)}
	}
	f.all[inner.Rank()].add(r)
	return r
}

// everyFabric holds the fabrics of one rank.
type everyFabric struct {
	mu sync.Mutex
	// list holds the fabric passed to Wrap, unless it is closed, and its copies.
	// +checklocks:mu
	list []*ranked
	// base is the fabric passed to Wrap, once it has a copy.
	// +checklocks:mu
	base *ranked
}

func (e *everyFabric) remove(r *ranked) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = slices.DeleteFunc(e.list, func(x *ranked) bool { return x == r })
}

func (e *everyFabric) add(r *ranked) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == 1 && e.base == nil {
		e.base = e.list[0]
	}
	e.list = append(e.list, r)
}

// interrupt makes the rank check its links. A fabric that has had copies is only used for
// Duplicate, and an interrupt would end the current or the next call of that.
func (e *everyFabric) interrupt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.list {
		if r != e.base {
			r.Interrupt()
		}
	}
}

func (f *Faults) pair(from, to plan.Rank) *pair { return &f.pairs[int(from)*f.n+int(to)] }

// Cut cuts the link between two ranks.
func (f *Faults) Cut(a, b plan.Rank) {
	for _, p := range []*pair{f.pair(a, b), f.pair(b, a)} {
		p.cut.Store(true)
		p.lost.Store(true)
	}
	f.all[a].interrupt()
	f.all[b].interrupt()
}

// CutAfter cuts the link between two ranks when one of them has sent the given number of
// further bytes to the other.
func (f *Faults) CutAfter(from, to plan.Rank, bytes uint64) {
	p := f.pair(from, to)
	p.cutAt.Store(p.sent.Load() + max(bytes, 1))
}

// Heal removes all cuts, including scheduled ones.
func (f *Faults) Heal() {
	for i := range f.pairs {
		p := &f.pairs[i]
		p.cut.Store(false)
		p.lost.Store(false)
		p.cutAt.Store(0)
		p.left.Store(0)
	}
}

// CutEach works like CutAfter, and repeats the cut: times cuts in total, each after the given
// number of further bytes.
func (f *Faults) CutEach(from, to plan.Rank, bytes uint64, times int) {
	p := f.pair(from, to)
	p.every.Store(bytes)
	p.left.Store(int64(times - 1))
	f.CutAfter(from, to, bytes)
}

// FlipAfter alters one byte on its way to another rank, after the given number of further bytes.
func (f *Faults) FlipAfter(from, to plan.Rank, bytes uint64) {
	p := f.pair(from, to)
	p.flipAt.Store(p.sent.Load() + bytes + 1)
}

// Sent returns the number of bytes that a rank has sent to another one so far.
func (f *Faults) Sent(from, to plan.Rank) uint64 { return f.pair(from, to).sent.Load() }

// Lag makes a rank find received bytes only at every looks-th attempt.
func (f *Faults) Lag(from, to plan.Rank, looks int) { f.pair(from, to).lag.Store(int64(looks)) }

// Trickle makes a link accept one byte, and the next one only after a pause. 0 means no pause.
func (f *Faults) Trickle(from, to plan.Rank, pause time.Duration) {
	f.pair(from, to).pause.Store(int64(pause))
	f.all[from].interrupt()
}

// ranked is a rank's fabric.
type ranked struct {
	fabric.Fabric
	faults *Faults
	links  []*link
}

// Link returns the link with a peer, subject to the faults.
func (r *ranked) Link(peer plan.Rank) fabric.Link {
	if peer == r.Rank() {
		return nil
	}
	return r.links[peer]
}

// Park returns immediately if a link is lost or delays its bytes, and, for a link that
// trickles, when the next byte may be sent.
func (r *ranked) Park(ctx context.Context, want []fabric.Want) error {
	for _, w := range want {
		if r.links[w.Peer].ended() || r.faults.pair(w.Peer, r.Rank()).lag.Load() > 0 {
			return ctx.Err()
		}
		if p := r.faults.pair(r.Rank(), w.Peer); w.Send && p.pause.Load() > 0 {
			// The underlying link has room, so its Park would return at once.
			late, cancel := context.WithDeadline(ctx, time.Unix(0, p.next.Load()))
			defer cancel()
			want = slices.DeleteFunc(slices.Clone(want), func(w fabric.Want) bool { return !w.Receive })
			for i := range want {
				want[i].Send = false
			}
			if err := r.Fabric.Park(late, want); err == nil || ctx.Err() != nil {
				return err
			}
			return nil
		}
	}
	return r.Fabric.Park(ctx, want)
}

// Duplicate applies the same faults to the copy: a link that is cut is cut in all fabrics,
// until one of them is reformed.
func (r *ranked) Duplicate(ctx context.Context) (fabric.Fabric, error) {
	f, err := r.Fabric.Duplicate(ctx)
	if err != nil {
		return nil, err
	}
	return r.faults.wrap(f), nil
}

// Close ends the rank's fabric.
func (r *ranked) Close() error {
	r.faults.all[r.Rank()].remove(r)
	return r.Fabric.Close()
}

// Reform creates links anew, including those that were cut.
func (r *ranked) Reform(ctx context.Context) error {
	if err := r.Fabric.Reform(ctx); err != nil {
		return err
	}
	for peer := range r.links {
		r.faults.pair(r.Rank(), plan.Rank(peer)).cut.Store(false)
		r.faults.pair(plan.Rank(peer), r.Rank()).lost.Store(false)
	}
	return nil
}

// link is a stream that is subject to the faults.
type link struct {
	ranked *ranked
	peer   plan.Rank
	// flipped holds a message's bytes with one of them altered.
	flipped []byte
}

// ended reports whether this end sees the link as cut.
func (l *link) ended() bool {
	return l.out().cut.Load() || l.in().lost.Load()
}

func (l *link) out() *pair { return l.ranked.faults.pair(l.ranked.Rank(), l.peer) }
func (l *link) in() *pair  { return l.ranked.faults.pair(l.peer, l.ranked.Rank()) }

func (l *link) inner() fabric.Link { return l.ranked.Fabric.Link(l.peer) }

func (l *link) failure() error { return &fabric.LinkError{Peer: l.peer, Err: ErrCut} }

// TrySend sends the bytes up to a scheduled cut, and then cuts the link.
func (l *link) TrySend(head, body []byte) (int, error) {
	out := l.out()
	if l.ended() {
		return 0, l.failure()
	}
	if pause := out.pause.Load(); pause > 0 {
		now := time.Now().UnixNano()
		if now < out.next.Load() {
			return 0, nil
		}
		out.next.Store(now + pause)
		head = head[:min(1, len(head))]
		body = body[:min(1-len(head), len(body))]
	}
	sent := out.sent.Load()
	if at := out.cutAt.Load(); at != 0 {
		left := at - min(sent, at)
		if left == 0 {
			out.cutAt.Store(0)
			if out.left.Add(-1) >= 0 {
				out.cutAt.Store(sent + out.every.Load())
			}
			l.ranked.faults.Cut(l.ranked.Rank(), l.peer)
			return 0, l.failure()
		}
		head = head[:min(uint64(len(head)), left)]
		body = body[:min(uint64(len(body)), left-uint64(len(head)))]
	}
	if at := out.flipAt.Load(); at > sent && at <= sent+uint64(len(head)+len(body)) {
		l.flipped = append(append(l.flipped[:0], head...), body...)
		l.flipped[at-sent-1] ^= 0x40
		head, body = l.flipped[:len(head)], l.flipped[len(head):]
	}
	n, err := l.inner().TrySend(head, body)
	if at := out.flipAt.Load(); at > sent && at <= sent+uint64(n) {
		out.flipAt.Store(0)
	}
	out.sent.Add(uint64(n))
	return n, err
}

// TrySendZeroCopy calls TrySend: bytes subject to faults are copied.
func (l *link) TrySendZeroCopy(head, body []byte) (int, error) { return l.TrySend(head, body) }

// TryReceive receives the bytes that have arrived, unless Lag delays them.
func (l *link) TryReceive(p []byte) (int, error) {
	in := l.in()
	if l.ended() {
		return 0, l.failure()
	}
	if lag := in.lag.Load(); lag > 0 && in.looks.Add(1)%lag != 0 {
		return 0, nil
	}
	return l.inner().TryReceive(p)
}
