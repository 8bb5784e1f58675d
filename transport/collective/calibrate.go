package collective

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

const (
	// probes is the number of small messages that are measured, of probeSize bytes each.
	probes    = 16
	probeSize = 8
	// loads is the number of large ones, of loadSize bytes each at least: with few
	// ranks of more, so that a stream is measured which its buffers and a cache
	// don't hold, and with many of no more, so that New takes no longer.
	loads    = 3
	loadSize = 512 << 10
	// memorySize is the number of bytes that all ranks together combine and copy.
	memorySize = 8 << 20
)

// calibrate measures what links and memory cost while all ranks do the same, and
// agrees on it: what is slowest at any rank counts.
//
// +checklocks:g.mu
func (g *Group) calibrate(ctx context.Context) error {
	if c := g.opts.Costs; c != nil {
		g.costs = *c
		return nil
	}
	if g.Size() == 1 {
		return nil
	}
	g.guard.next()
	g.guard.ident = g.guard.intern(controlFrame(forGroup))
	var mine plan.Costs
	var err error
	inside, between := g.neighbours()
	if mine.Inside, err = g.measure(ctx, inside); err != nil {
		return err
	}
	if mine.Between, err = g.measure(ctx, between); err != nil {
		return err
	}
	if mine.Combine, mine.Memory, err = g.measureMemory(ctx); err != nil {
		return err
	}
	g.guard.next()
	all := g.rows(costsSize)
	if err = g.exchange(ctx, forGroup, putCosts(&mine), all); err != nil {
		return fmt.Errorf("agree on costs: %w", err)
	}
	for _, p := range all {
		worse(&g.costs, readCosts(p))
	}
	return nil
}

// ring returns the ranks that a rank sends to and receives from; both are ourselves where there
// is nobody.
type ring struct{ next, before plan.Rank }

// neighbours are the rings inside each node, and of the first ranks of the
// nodes.
func (g *Group) neighbours() (inside, between ring) {
	nodes := g.fabric.Nodes()
	me := g.Rank()
	var mates, leaders []plan.Rank
	seen := map[int]bool{}
	for r, node := range nodes {
		if node == nodes[me] {
			mates = append(mates, plan.Rank(r))
		}
		if !seen[node] {
			seen[node] = true
			leaders = append(leaders, plan.Rank(r))
		}
	}
	return ringOf(mates, me), ringOf(leaders, me)
}

func ringOf(all []plan.Rank, me plan.Rank) ring {
	n := len(all)
	for i, r := range all {
		if r == me {
			return ring{next: all[(i+1)%n], before: all[(i+n-1)%n]}
		}
	}
	return ring{me, me}
}

// measure sends around a ring.
//
// +checklocks:g.mu
func (g *Group) measure(ctx context.Context, r ring) (plan.Link, error) {
	if r.next == g.Rank() {
		return plan.Link{}, nil
	}
	small, err := g.rounds(ctx, r, probeSize, probes)
	if err != nil {
		return plan.Link{}, err
	}
	size := g.largeSize()
	large, err := g.rounds(ctx, r, size, loads)
	if err != nil {
		return plan.Link{}, err
	}
	c := plan.Link{Latency: small}
	c.Bandwidth = float64(size) / max(large-small, time.Nanosecond).Seconds()
	return c, nil
}

// largeSize is the bytes of a message, or of memory, whose speed is measured:
// its share for each rank of memorySize.
func (g *Group) largeSize() uint64 {
	n := min(max(memorySize/uint64(g.Size()), loadSize), memorySize/4)
	return n - n%loadSize
}

// rounds says how long it takes to send some bytes to the next rank and receive
// as many from the one before: the median, as a rank may be kept waiting by
// something else. The first time does not count.
//
// +checklocks:g.mu
func (g *Group) rounds(ctx context.Context, r ring, size uint64, times int) (time.Duration, error) {
	l := g.loop
	memory, err := g.own.bytes(ctx, 2*size)
	if err != nil {
		return 0, err
	}
	l.memory = [4][]byte{plan.Scratch: memory}
	t := plan.Task{Kind: plan.AllGather, Ranks: g.Size(), Type: elem.Uint8}
	prog := newProgram(plan.Program{
		{Action: plan.Send, Peer: r.next, Block: plan.Block{Buffer: plan.Scratch, Range: plan.Range{Len: size}}},
		{Action: plan.Receive, Peer: r.before, Block: plan.Block{Buffer: plan.Scratch, Range: plan.Range{Off: size, Len: size}}},
	}, g.Rank(), 1, staging{})
	took := make([]time.Duration, times+1)
	for i := range took {
		began := time.Now()
		l.begin(&t, prog)
		if err := l.all(ctx); err != nil {
			return 0, fmt.Errorf("measure the links: %w", err)
		}
		took[i] = time.Since(began)
	}
	took = took[1:]
	slices.Sort(took)
	return took[times/2], nil
}

// measureMemory says how many bytes are combined and copied in a second.
//
// +checklocks:g.mu
func (g *Group) measureMemory(ctx context.Context) (combine, memory float64, err error) {
	// So much that the ranks of a node, all together, do not keep it in a cache.
	n := g.largeSize()
	p, err := g.own.bytes(ctx, 2*n)
	if err != nil {
		return 0, 0, err
	}
	a, b := p[:n], p[n:2*n]
	clear(p)
	began := time.Now()
	if err = elem.Combine(elem.Sum, elem.Float32, a, a, b); err != nil {
		return 0, 0, err
	}
	between := time.Now()
	copy(a, b)
	ended := time.Now()
	return float64(n) / between.Sub(began).Seconds(), float64(n) / ended.Sub(between).Seconds(), nil
}

// worse makes each cost the higher one.
func worse(c *plan.Costs, o plan.Costs) {
	slower := func(a *float64, b float64) {
		if *a == 0 || b > 0 && b < *a {
			*a = b
		}
	}
	for _, l := range [][2]*plan.Link{{&c.Inside, &o.Inside}, {&c.Between, &o.Between}} {
		l[0].Latency = max(l[0].Latency, l[1].Latency)
		slower(&l[0].Bandwidth, l[1].Bandwidth)
	}
	slower(&c.Combine, o.Combine)
	slower(&c.Memory, o.Memory)
}

// EncodeCosts writes costs for DecodeCosts: for ranks that are given those of a
// group before.
func EncodeCosts(c plan.Costs) []byte { return putCosts(&c) }

// DecodeCosts reads what EncodeCosts has written, and may have been written by
// somebody else.
//
// Errors: ErrArgument.
func DecodeCosts(p []byte) (plan.Costs, error) {
	if len(p) != costsSize {
		return plan.Costs{}, fmt.Errorf("%w: costs of %d bytes", ErrArgument, len(p))
	}
	c := readCosts(p)
	for _, speed := range []float64{c.Inside.Bandwidth, c.Between.Bandwidth, c.Combine, c.Memory} {
		if math.IsNaN(speed) || math.IsInf(speed, 0) || speed < 0 {
			return plan.Costs{}, fmt.Errorf("%w: a speed of %v", ErrArgument, speed)
		}
	}
	for _, l := range []time.Duration{c.Inside.Latency, c.Between.Latency} {
		if l < 0 || l > time.Hour {
			return plan.Costs{}, fmt.Errorf("%w: a latency of %v", ErrArgument, l)
		}
	}
	return c, nil
}

// costsSize is the bytes that costs are exchanged in.
const costsSize = 48

func putCosts(c *plan.Costs) []byte {
	p := make([]byte, 0, costsSize)
	p = binary.LittleEndian.AppendUint64(p, uint64(c.Inside.Latency))
	p = binary.LittleEndian.AppendUint64(p, uint64(c.Between.Latency))
	for _, f := range []float64{c.Inside.Bandwidth, c.Between.Bandwidth, c.Combine, c.Memory} {
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(f))
	}
	return p
}

func readCosts(p []byte) (c plan.Costs) {
	c.Inside.Latency = time.Duration(binary.LittleEndian.Uint64(p))
	c.Between.Latency = time.Duration(binary.LittleEndian.Uint64(p[8:]))
	for i, f := range []*float64{&c.Inside.Bandwidth, &c.Between.Bandwidth, &c.Combine, &c.Memory} {
		*f = math.Float64frombits(binary.LittleEndian.Uint64(p[16+8*i:]))
	}
	return c
}
