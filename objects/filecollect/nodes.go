package filecollect

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Group runs collectives among the nodes. It is a *collective.Group; tests use others.
type Group interface {
	Rank() plan.Rank
	Size() int
	Share(ctx context.Context, b *region.Buffer) (mapped bool, err error)
	AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error
	ReduceScatter(ctx context.Context, result, source domain.View, op elem.Op) error
	AllGather(ctx context.Context, result, source domain.View) error
	Broadcast(ctx context.Context, v domain.View, root plan.Rank) error
	Reduce(ctx context.Context, result, source domain.View, op elem.Op, root plan.Rank) error
	AllToAll(ctx context.Context, result, source domain.View) error
	Close() error
}

var _ Group = (*collective.Group)(nil)

// Nodes describes the nodes that have files.
type Nodes struct {
	// Group has each node as one rank, and is strict if the task is strict and Ordered returns
	// true. Run closes it.
	Group Group
	// Table has the memory that the bytes pass through.
	Table *region.Table
	// Of has, for each rank, the node that its file is on, from 0.
	Of []int
}

const (
	// slots is the number of segments in progress: one is being read, one is exchanged between
	// the nodes, one is being written.
	slots = 3
	// slotBytes is the approximate size of the memory of one segment.
	slotBytes = 4 << 20
	// leastPiece is the minimum number of bytes of a file in a segment, as long as the
	// segment's memory does not exceed mostBytes: a few files of many nodes and many files of
	// one node can add up to tens of thousands of pieces.
	leastPiece = 4 << 10
	mostBytes  = 32 << 20
)

// Ordered reports whether a strict task can use a strict group: each node has one file, and
// the nodes are in the order of the ranks. Otherwise every node gets the bytes of all files
// and combines them itself.
func Ordered(of []int) bool {
	for rank, node := range of {
		if rank != node {
			return false
		}
	}
	return true
}

// rounds runs a task on several nodes, segment by segment.
type rounds struct {
	t     Task
	files []*File
	nodes *Nodes
	me    int
	count int // number of nodes
	// mine are our ranks, byNode those of each node; most is the largest number of ranks of a
	// node.
	mine   []int
	byNode [][]int
	most   int
	// gathers is true if every node combines everything.
	gathers bool
	// even is true if the nodes' parts are equal and in the order of the ranks.
	even bool
	// piece is the number of bytes of one file in a segment; total is the number of bytes of
	// each file.
	piece, total uint64
}

// slot is the memory of one segment.
type slot struct {
	in, out *region.Buffer
	// acc and term are buffers for folding.
	acc, term []byte
	off, n    uint64
}

func newRounds(t Task, files []*File, nodes *Nodes) *rounds {
	r := &rounds{t: t, files: files, nodes: nodes, me: int(nodes.Group.Rank()), count: nodes.Group.Size()}
	r.byNode = make([][]int, r.count)
	for rank, node := range nodes.Of {
		r.byNode[node] = append(r.byNode[node], rank)
	}
	r.mine = r.byNode[r.me]
	for _, ranks := range r.byNode {
		r.most = max(r.most, len(ranks))
	}
	r.even = slices.IsSorted(nodes.Of) && r.most*r.count == t.Ranks
	r.gathers = t.Strict && t.Kind.Combines() && !Ordered(nodes.Of)
	r.total = t.Size
	if t.Kind == plan.ReduceScatter || t.Kind == plan.AllToAll {
		r.total = t.part(0).Len // the longest
	}
	in, out := r.factors()
	pieces := uint64(max(in, out, 1))
	r.piece = max(slotBytes/pieces, min(leastPiece, mostBytes/pieces)) &^ 63
	r.piece = min(r.piece, (r.total+63)&^63)
	return r
}

// factors returns the number of pieces in a segment's buffers for the input and for the output
// of the group; out 0 means that the output has no buffer of its own.
func (r *rounds) factors() (in, out int) {
	switch {
	case r.t.Kind == plan.ReduceScatter && r.gathers:
		return r.most * r.t.Ranks, r.count * r.most * r.t.Ranks
	case r.gathers, r.t.Kind == plan.AllGather:
		return r.most, r.count * r.most
	case r.t.Kind == plan.ReduceScatter:
		return r.t.Ranks, 0
	case r.t.Kind == plan.AllToAll:
		return r.count * r.most * r.most, r.count * r.most * r.most
	default:
		return 1, 0
	}
}

// run processes all segments. Each step has a goroutine; the steps of one segment are
// sequential, and use the same slot.
func (r *rounds) run(ctx context.Context) (err error) {
	if r.total == 0 {
		return r.nodes.Group.Close()
	}
	var all [slots]*slot
	defer func() {
		// The group uses the shared memory until it is closed.
		err = errors.Join(err, r.nodes.Group.Close())
		for _, s := range all {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	free, loaded, exchanged := make(chan struct{}, slots), make(chan struct{}, slots), make(chan struct{}, slots)
	for i := range all {
		if all[i], err = r.newSlot(ctx); err != nil {
			return err
		}
		free <- struct{}{}
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	step := func(from <-chan struct{}, to chan<- struct{}, do func(context.Context, *slot) error) {
		running.Go(func() {
			for i, off := 0, uint64(0); off < r.total; i, off = i+1, off+r.piece {
				select {
				case <-from:
				case <-within.Done():
					return
				}
				s := all[i%slots]
				s.off, s.n = off, min(r.piece, r.total-off)
				if failure := Contained(func() error { return do(within, s) }); failure != nil {
					cancel(failure)
					return
				}
				to <- struct{}{}
			}
		})
	}
	step(free, loaded, r.load)
	step(loaded, exchanged, r.exchange)
	step(exchanged, free, r.store)
	running.Wait()
	return context.Cause(within)
}

// newSlot allocates the memory of a segment, and shares it with the other nodes if possible.
func (r *rounds) newSlot(ctx context.Context) (s *slot, err error) {
	s = &slot{acc: make([]byte, r.piece), term: make([]byte, r.piece)}
	in, out := r.factors()
	if s.in, err = r.alloc(ctx, in); err == nil && out > 0 {
		s.out, err = r.alloc(ctx, out)
	}
	if err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (r *rounds) alloc(ctx context.Context, pieces int) (*region.Buffer, error) {
	b, err := r.nodes.Table.Alloc(devices.Size(uint64(pieces) * r.piece))
	if err != nil {
		return nil, err
	}
	if _, err = r.nodes.Group.Share(ctx, b); err != nil {
		return nil, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

func (s *slot) close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, b := range []*region.Buffer{s.in, s.out} {
		if b != nil {
			errs = append(errs, b.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// bytes returns n bytes of a buffer, starting at piece i.
func (r *rounds) bytes(b *region.Buffer, i int, n uint64) []byte {
	return b.Host(devices.Offset(uint64(i)*r.piece), devices.Size(n))
}

// view returns a view of some pieces of a buffer, the last of which has n bytes.
func (r *rounds) view(b *region.Buffer, first, pieces int, n uint64) (domain.View, error) {
	size := r.t.Type.Size()
	bytes := uint64(pieces-1)*r.piece + n
	return domain.NewView(b, devices.Offset(uint64(first)*r.piece), r.t.Type, bytes/size)
}

// partOf returns the number of bytes of a rank's part in a segment; 0 if the part ends before
// it.
func (r *rounds) partOf(rank int, s *slot) uint64 {
	n := r.t.part(rank).Len
	if s.off >= n {
		return 0
	}
	return min(s.n, n-s.off)
}

// load reads the data of our files that the nodes need.
func (r *rounds) load(ctx context.Context, s *slot) error {
	switch {
	case r.t.Kind == plan.AllToAll, r.t.Kind == plan.ReduceScatter && r.gathers:
		return r.loadParts(ctx, s)
	case r.t.Kind == plan.ReduceScatter:
		for to := range r.t.Ranks {
			n := r.partOf(to, s)
			if n == 0 {
				continue
			}
			if err := fold(ctx, r.t, r.files, unit{from: r.mine, at: r.t.part(to).Off + s.off}, r.bytes(s.in, to, n), s.term[:n]); err != nil {
				return err
			}
		}
		return nil
	case r.gathers, r.t.Kind == plan.AllGather:
		for i, rank := range r.mine {
			if err := r.files[rank].Source.Read(ctx, r.bytes(s.in, i, s.n), s.off); err != nil {
				return ofRank(rank, err)
			}
		}
		return nil
	case r.t.Kind != plan.Broadcast:
		return fold(ctx, r.t, r.files, unit{from: r.mine, at: s.off}, r.bytes(s.in, 0, s.n), s.term[:s.n])
	case r.nodes.Of[r.t.Root] == r.me:
		return ofRank(r.t.Root, r.files[r.t.Root].Source.Read(ctx, r.bytes(s.in, 0, s.n), s.off))
	}
	return nil
}

// loadParts reads the parts of our files for each rank. For AllToAll, the pieces for one node
// are a row for each of our files.
func (r *rounds) loadParts(ctx context.Context, s *slot) error {
	for i, from := range r.mine {
		for to := range r.t.Ranks {
			n := r.partOf(to, s)
			if n == 0 {
				continue
			}
			piece := i*r.t.Ranks + to
			if r.t.Kind == plan.AllToAll {
				node, j := r.place(to)
				piece = (node*r.most+i)*r.most + j
			}
			if err := r.files[from].Source.Read(ctx, r.bytes(s.in, piece, n), r.t.part(to).Off+s.off); err != nil {
				return ofRank(from, err)
			}
		}
	}
	return nil
}

// place returns the node of a rank, and the rank's index among those of the node.
func (r *rounds) place(rank int) (node, i int) {
	node = r.nodes.Of[rank]
	return node, slices.Index(r.byNode[node], rank)
}

// exchange runs the collective among the nodes.
func (r *rounds) exchange(ctx context.Context, s *slot) error {
	g := r.nodes.Group
	in, out := r.factors()
	n := s.n
	if in > 1 || out > 0 {
		n = r.piece // whole pieces; the rest is ignored
	}
	source, err := r.view(s.in, 0, in, n)
	if err != nil {
		return err
	}
	if out > 0 {
		result, failure := r.view(s.out, 0, out, n)
		if failure != nil {
			return failure
		}
		if r.t.Kind == plan.AllToAll {
			return g.AllToAll(ctx, result, source)
		}
		return g.AllGather(ctx, result, source)
	}
	switch r.t.Kind {
	case plan.Broadcast:
		return g.Broadcast(ctx, source, plan.Rank(r.nodes.Of[r.t.Root]))
	case plan.Reduce:
		return g.Reduce(ctx, source, source, r.t.folds(), plan.Rank(r.nodes.Of[r.t.Root]))
	case plan.ReduceScatter:
		if !r.even {
			break
		}
		result, failure := r.view(s.in, r.me*r.most, r.most, n)
		if failure != nil {
			return failure
		}
		return g.ReduceScatter(ctx, result, source, r.t.folds())
	default:
	}
	return g.AllReduce(ctx, source, source, r.t.folds())
}

// store writes our results.
func (r *rounds) store(ctx context.Context, s *slot) error {
	switch {
	case r.t.Kind == plan.AllToAll:
		return r.storeExchange(ctx, s)
	case r.t.Kind == plan.AllGather:
		for rank := range r.t.Ranks {
			p := r.bytes(s.out, r.gathered(rank), s.n)
			if err := spread(ctx, r.files, r.mine, p, uint64(rank)*r.t.Size+s.off); err != nil {
				return err
			}
		}
		return nil
	case r.t.Kind == plan.ReduceScatter:
		return r.storeParts(ctx, s)
	case r.gathers:
		err := r.foldGathered(s.acc[:s.n], func(rank int) []byte { return r.bytes(s.out, r.gathered(rank), s.n) })
		if err != nil {
			return err
		}
		return spread(ctx, r.files, r.mine, s.acc[:s.n], s.off)
	}
	p := r.bytes(s.in, 0, s.n)
	if r.t.Kind != plan.Reduce || r.nodes.Of[r.t.Root] == r.me {
		if err := r.t.finish(p); err != nil {
			return err
		}
	}
	return spread(ctx, r.files, r.mine, p, s.off)
}

// gathered returns the index of a rank's piece in the output that is gathered from all nodes.
func (r *rounds) gathered(rank int) int {
	node, i := r.place(rank)
	return node*r.most + i
}

// foldGathered combines the pieces of all ranks in their order.
func (r *rounds) foldGathered(acc []byte, of func(rank int) []byte) error {
	copy(acc, of(0))
	for rank := 1; rank < r.t.Ranks; rank++ {
		if err := elem.Combine(r.t.folds(), r.t.Type, acc, acc, of(rank)); err != nil {
			return err
		}
	}
	return r.t.finish(acc)
}

// storeParts writes to each of our ranks its part.
func (r *rounds) storeParts(ctx context.Context, s *slot) error {
	for i, to := range r.mine {
		n := r.partOf(to, s)
		if n == 0 {
			continue
		}
		p := r.bytes(s.in, to, n)
		var err error
		if r.gathers {
			p = s.acc[:n]
			err = r.foldGathered(p, func(rank int) []byte { return r.bytes(s.out, r.gathered(rank)*r.t.Ranks+to, n) })
		} else {
			err = r.t.finish(p)
		}
		if err == nil {
			err = spread(ctx, r.files, r.mine[i:i+1], p, s.off)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// storeExchange writes the parts of each rank for our ranks.
func (r *rounds) storeExchange(ctx context.Context, s *slot) error {
	for from := range r.t.Ranks {
		for j, to := range r.mine {
			n := r.partOf(to, s)
			if n == 0 {
				continue
			}
			p := r.bytes(s.out, r.gathered(from)*r.most+j, n)
			if err := spread(ctx, r.files, r.mine[j:j+1], p, uint64(from)*r.t.part(to).Len+s.off); err != nil {
				return err
			}
		}
	}
	return nil
}
