package collective

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

const (
	// probes is the number of small messages that are measured, of probeSize bytes each.
	probes    = 16
	probeSize = 8
	// loads is the number of large messages that are measured, of at least loadSize bytes
	// each. With few ranks they are larger, so that buffers and caches don't hold a whole
	// stream; with many they are not, so that New does not take longer.
	loads    = 3
	loadSize = 512 << 10
	// memorySize is the number of bytes that all ranks together combine and copy.
	memorySize = 8 << 20
)

// calibration measures the costs of links and memory. It is used by New only; Group.mu
// guards it.
type calibration struct {
	places   fabric.Places
	seq      *sequence
	messages *messenger
	exec     *executor
	scratch  *scratch
}

// run measures the costs of links and memory while all ranks do the same, and agrees on
// them: the slowest rank determines each cost.
func (c *calibration) run(ctx context.Context) (costs plan.Costs, err error) {
	if c.places.Size() == 1 {
		return costs, nil
	}
	c.seq.next()
	c.seq.ident = c.seq.intern(controlFrame(forGroup))
	var mine plan.Costs
	inside, between := c.neighbours()
	if mine.Inside, err = c.measure(ctx, inside); err != nil {
		return costs, err
	}
	if mine.Between, err = c.measure(ctx, between); err != nil {
		return costs, err
	}
	if mine.Combine, mine.Memory, err = c.measureMemory(ctx); err != nil {
		return costs, err
	}
	c.seq.next()
	all := rows(c.places.Size(), costsSize)
	if err = c.messages.exchange(ctx, forGroup, EncodeCosts(mine), all); err != nil {
		return costs, fmt.Errorf("exchange measured costs: %w", err)
	}
	for _, p := range all {
		worse(&costs, readCosts(p))
	}
	return costs, nil
}

// ring names the rank to send to and the one to receive from; both are our own rank if
// there is no other.
type ring struct{ next, before plan.Rank }

// neighbours returns the rings inside our node, and among the first ranks of the nodes.
func (c *calibration) neighbours() (inside, between ring) {
	nodes := c.places.Nodes()
	me := c.places.Rank()
	var mates, leaders []plan.Rank
	for r, node := range nodes {
		if node == nodes[me] {
			mates = append(mates, plan.Rank(r))
		}
		if slices.Index(nodes, node) == r {
			leaders = append(leaders, plan.Rank(r))
		}
	}
	return ringOf(mates, me), ringOf(leaders, me)
}

func ringOf(all []plan.Rank, me plan.Rank) ring {
	i, n := slices.Index(all, me), len(all)
	if i < 0 {
		return ring{me, me}
	}
	return ring{next: all[(i+1)%n], before: all[(i+n-1)%n]}
}

// measure sends messages around a ring.
func (c *calibration) measure(ctx context.Context, r ring) (plan.Link, error) {
	if r.next == c.places.Rank() {
		return plan.Link{}, nil
	}
	small, err := c.rounds(ctx, r, probeSize, probes)
	if err != nil {
		return plan.Link{}, err
	}
	size := c.largeSize()
	large, err := c.rounds(ctx, r, size, loads)
	if err != nil {
		return plan.Link{}, err
	}
	bandwidth := float64(size) / max(large-small, time.Nanosecond).Seconds()
	return plan.Link{Latency: small, Bandwidth: bandwidth}, nil
}

// largeSize returns the size of the messages, and of the memory, whose speed is measured: a
// rank's share of memorySize, within limits.
func (c *calibration) largeSize() uint64 {
	n := min(max(memorySize/uint64(c.places.Size()), loadSize), memorySize/4)
	return n - n%loadSize
}

// rounds returns the time to send some bytes to the next rank and to receive as many from
// the one before: the median, as other load may delay a rank. The first round is not
// counted.
func (c *calibration) rounds(ctx context.Context, r ring, size uint64, times int) (time.Duration, error) {
	memory, err := c.scratch.bytes(ctx, 2*size)
	if err != nil {
		return 0, err
	}
	t := plan.Task{Kind: plan.AllGather, Ranks: c.places.Size(), Type: elem.Uint8}
	prog := newProgram(plan.Program{
		{Action: plan.Send, Peer: r.next, Block: plan.Block{Buffer: plan.Scratch, Range: plan.Range{Len: size}}},
		{Action: plan.Receive, Peer: r.before, Block: plan.Block{Buffer: plan.Scratch, Range: plan.Range{Off: size, Len: size}}},
	}, c.places.Rank(), 1, staging{})
	took := make([]time.Duration, times+1)
	for i := range took {
		began := time.Now()
		c.exec.begin(work{task: &t, prog: prog, memory: [4][]byte{plan.Scratch: memory}})
		if err := c.exec.run(ctx); err != nil {
			return 0, fmt.Errorf("measure the links: %w", err)
		}
		took[i] = time.Since(began)
	}
	took = took[1:]
	slices.Sort(took)
	return took[times/2], nil
}

// measureMemory returns the numbers of bytes combined and copied per second.
func (c *calibration) measureMemory(ctx context.Context) (combine, memory float64, err error) {
	// Enough that the caches of a node do not hold the memory of all its ranks.
	n := c.largeSize()
	p, err := c.scratch.bytes(ctx, 2*n)
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

// worse replaces each cost by the higher of the two.
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
