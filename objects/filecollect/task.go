package filecollect

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// ErrTask reports a task that cannot be carried out.
var ErrTask = errors.New("collect: not possible")

// Task describes a collective. It is the same on all nodes.
type Task struct {
	// Kind is any but plan.Barrier.
	Kind  plan.Kind
	Type  elem.Type
	Op    elem.Op // 0 if nothing is combined
	Root  int     // 0 if there is none
	Ranks int
	// Size is the number of bytes of each source.
	Size uint64
	// Strict combines in the order of the ranks.
	Strict bool
	// Algorithm is the algorithm between the nodes; empty selects the fastest.
	Algorithm plan.Algorithm
}

// Validate reports the first fault of the task.
//
// Errors: ErrTask.
func (t Task) Validate() error {
	size := t.Type.Size()
	switch {
	case t.Kind < plan.AllReduce || t.Kind > plan.AllToAll:
		return fmt.Errorf("invalid collective %d: %w", t.Kind, ErrTask)
	case t.Ranks < 1 || t.Ranks > plan.MaxRanks:
		return fmt.Errorf("%d files given, but 1 to %d are allowed: %w", t.Ranks, plan.MaxRanks, ErrTask)
	case size == 0:
		return fmt.Errorf("unsupported type %s: %w", t.Type, ErrTask)
	case t.Size%size != 0:
		return fmt.Errorf("files of %d bytes are not a multiple of %d, the size of one %s; give the type of their elements: %w", t.Size, size, t.Type, ErrTask)
	case t.Root < 0 || t.Root >= t.Ranks:
		return fmt.Errorf("invalid root %d of %d files: %w", t.Root, t.Ranks, ErrTask)
	case t.Kind.Combines() != (t.Op != 0) || t.Op != 0 && !t.Op.Known():
		return fmt.Errorf("invalid operation %d: %w", t.Op, ErrTask)
	case t.Op != 0 && !t.Type.Combines():
		return fmt.Errorf("elements of type %s can't be combined; use one of int8, uint8, int32, int64, float16, bfloat16, float32, float64: %w", t.Type, ErrTask)
	}
	if t.Algorithm != "" && !t.Algorithm.Known() {
		return fmt.Errorf("unknown algorithm %q: %w", t.Algorithm, ErrTask)
	}
	if most := uint64(1<<63 - 1); t.Size > most/uint64(t.Ranks) {
		return fmt.Errorf("the result of %d files of %d bytes is too large: %w", t.Ranks, t.Size, ErrTask)
	}
	return nil
}

// HasSource reports whether the bytes of a rank are read.
func (t Task) HasSource(rank int) bool { return t.Kind != plan.Broadcast || rank == t.Root }

// ResultSize returns the number of bytes of a rank's result.
func (t Task) ResultSize(rank int) uint64 {
	switch t.Kind {
	case plan.AllGather:
		return t.Size * uint64(t.Ranks)
	case plan.ReduceScatter:
		return t.part(rank).Len
	case plan.AllToAll:
		return t.part(rank).Len * uint64(t.Ranks)
	default:
		return t.Size
	}
}

// part returns the range of a rank's part of a source, in bytes.
func (t Task) part(rank int) plan.Range {
	size := t.Type.Size()
	r := plan.Part(t.Size/size, rank, t.Ranks)
	return plan.Range{Off: r.Off * size, Len: r.Len * size}
}

// folds returns the operation that combines two elements.
func (t Task) folds() elem.Op {
	if t.Op == elem.Avg {
		return elem.Sum
	}
	return t.Op
}

// finish converts the combination of all ranks to the result.
func (t Task) finish(p []byte) error {
	if t.Op != elem.Avg {
		return nil
	}
	return elem.Divide(t.Type, p, uint64(t.Ranks))
}

// RankError is a fault of the file of a rank.
type RankError struct {
	Rank int
	Err  error
}

// Error names the rank.
func (e *RankError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the cause.
func (e *RankError) Unwrap() error { return e.Err }

func ofRank(rank int, err error) error {
	if err == nil {
		return nil
	}
	return &RankError{Rank: rank, Err: err}
}
