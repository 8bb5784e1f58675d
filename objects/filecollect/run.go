package filecollect

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Source is a file that is read. It may be read by several goroutines.
type Source interface {
	// Read reads all of p from off.
	Read(ctx context.Context, p []byte, off uint64) error
}

// Result is content that is being written. It may be written by several goroutines.
type Result interface {
	// Write writes all of p to off.
	Write(ctx context.Context, p []byte, off uint64) error
}

// File is a rank whose file is on this node.
type File struct {
	Rank int
	// Source may be nil if Task.HasSource returns false for the rank.
	Source Source
	// Result is nil if there is none.
	Result Result
}

// Run executes this node's part of a task. nodes is nil if all files are on this node; its
// group is closed in any case.
//
// Errors: ErrTask; a RankError with those of sources and results; those of
// collective.Group.
func Run(ctx context.Context, t Task, files []File, nodes *Nodes) error {
	byRank, err := byRank(t, files)
	switch {
	case err != nil && nodes != nil:
		return errors.Join(err, nodes.Group.Close())
	case err != nil:
		return err
	case nodes != nil:
		return newRounds(t, byRank, nodes).run(ctx)
	case len(files) != t.Ranks:
		return fmt.Errorf("%d files for %d ranks: %w", len(files), t.Ranks, ErrTask)
	}
	return runHere(ctx, t, byRank)
}

// byRank sorts the files by rank; the entries of other nodes' files are nil.
func byRank(t Task, files []File) ([]*File, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	byRank := make([]*File, t.Ranks)
	for i := range files {
		f := &files[i]
		if f.Rank < 0 || f.Rank >= t.Ranks || byRank[f.Rank] != nil {
			return nil, fmt.Errorf("rank %d of %d is duplicate or invalid: %w", f.Rank, t.Ranks, ErrTask)
		}
		if f.Source == nil && t.HasSource(f.Rank) {
			return nil, fmt.Errorf("rank %d has no source: %w", f.Rank, ErrTask)
		}
		byRank[f.Rank] = f
	}
	return byRank, nil
}

// segment is the number of bytes of a file that are in memory at once: two of them fit a
// processor's own cache.
const segment = uint64(256 << 10)

// unit is a range of some results, and the range of the sources that it is computed from.
type unit struct {
	// from are the ranks that are read, to those that are written.
	from, to []int
	// at is the offset in a source, off the one in a result.
	at, off, n uint64
}

// unitsOf divides a task into units that can be processed concurrently, with segments of a
// given length.
func unitsOf(t Task, segment uint64) []unit {
	all := make([]int, t.Ranks)
	for i := range all {
		all[i] = i
	}
	var out []unit
	add := func(from, to []int, at, off, n uint64) {
		for done := uint64(0); done < n; done += segment {
			out = append(out, unit{from: from, to: to, at: at + done, off: off + done, n: min(segment, n-done)})
		}
	}
	switch t.Kind {
	case plan.AllReduce:
		add(all, all, 0, 0, t.Size)
	case plan.Reduce:
		add(all, all[t.Root:t.Root+1], 0, 0, t.Size)
	case plan.Broadcast:
		add(all[t.Root:t.Root+1], all, 0, 0, t.Size)
	case plan.AllGather:
		for r := range all {
			add(all[r:r+1], all, 0, uint64(r)*t.Size, t.Size)
		}
	case plan.ReduceScatter:
		for r := range all {
			p := t.part(r)
			add(all, all[r:r+1], p.Off, 0, p.Len)
		}
	case plan.AllToAll:
		for s := range all {
			for r := range all {
				p := t.part(r)
				add(all[s:s+1], all[r:r+1], p.Off, uint64(s)*p.Len, p.Len)
			}
		}
	default:
	}
	return out
}

// runHere runs a task whose files are all on this node.
func runHere(ctx context.Context, t Task, files []*File) error {
	todo := unitsOf(t, segment)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	work := func() {
		acc, term := make([]byte, segment), make([]byte, segment)
		for {
			i := int(next.Add(1)) - 1
			if i >= len(todo) || ctx.Err() != nil {
				return
			}
			if err := Contained(func() error { return runUnit(ctx, t, files, todo[i], acc, term) }); err != nil {
				cancel(err)
				return
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(todo)) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return context.Cause(ctx)
}

// runUnit processes a unit. acc and term are buffers of at least its length.
func runUnit(ctx context.Context, t Task, files []*File, u unit, acc, term []byte) error {
	acc = acc[:u.n]
	if err := fold(ctx, t, files, u, acc, term[:u.n]); err != nil {
		return err
	}
	if err := t.finish(acc); err != nil {
		return err
	}
	return spread(ctx, files, u.to, acc, u.off)
}

// fold reads a unit of the files of its ranks, and combines them into acc in the order of the
// ranks. term is a buffer for one of them.
func fold(ctx context.Context, t Task, files []*File, u unit, acc, term []byte) error {
	for i, rank := range u.from {
		into := term
		if i == 0 {
			into = acc
		}
		if err := files[rank].Source.Read(ctx, into, u.at); err != nil {
			return ofRank(rank, err)
		}
		if i == 0 {
			continue
		}
		if err := elem.Combine(t.folds(), t.Type, acc, acc, term); err != nil {
			return err
		}
	}
	return nil
}

// spread writes bytes to the results of some ranks.
func spread(ctx context.Context, files []*File, to []int, p []byte, off uint64) error {
	for _, rank := range to {
		if files[rank] == nil || files[rank].Result == nil {
			continue
		}
		if err := files[rank].Result.Write(ctx, p, off); err != nil {
			return ofRank(rank, err)
		}
	}
	return nil
}
