package plan

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// Rank is a rank of the group that runs the plan, starting at 0.
type Rank int

// MaxRanks is the maximum number of ranks of a plan.
const MaxRanks = 64

// Kind is the kind of a collective. Its values are used on the wire.
type Kind uint8

// The kinds. Part defines the parts of the ranks: if count is not a multiple of the number
// of ranks, the first parts have one more element.
const (
	// AllReduce combines the sources of all ranks; every rank gets the result.
	AllReduce Kind = iota + 1
	// ReduceScatter combines the sources of all ranks; each rank gets its part.
	ReduceScatter
	// AllGather concatenates the sources of all ranks, one part each; every rank gets the
	// result.
	AllGather
	// Broadcast copies the source of the root to every rank.
	Broadcast
	// Reduce combines the sources of all ranks; the root gets the result.
	Reduce
	// AllToAll gives rank r part r of every source, in the order of the ranks: its result
	// is as many times its part as there are ranks.
	AllToAll
	// Barrier returns at no rank before all have entered it.
	Barrier
)

// Task describes a collective. It is the same at every rank.
type Task struct {
	Kind  Kind
	Ranks int
	// Count is the number of elements of the whole: of each source for AllReduce,
	// ReduceScatter, Reduce and AllToAll, of each result for AllGather and Broadcast, and 0
	// for Barrier.
	Count uint64
	Type  elem.Type
	// Op is 0 for kinds that do not combine.
	Op elem.Op
	// Root is 0 for kinds without a root.
	Root Rank
	// InPlace reports that source and result share memory: they begin at the same element,
	// except that for ReduceScatter the result is at the place of its part in the source,
	// and for AllGather the source is at the place of its part in the result. AllToAll
	// can't be in place.
	InPlace bool
	// Strict requires elements to be combined in the order of the ranks.
	Strict bool
}

// Part returns the range of part i of n.
func Part(count uint64, i, n int) Range {
	share, rest := count/uint64(n), count%uint64(n)
	k := uint64(i)
	r := Range{Off: k*share + min(k, rest), Len: share}
	if k < rest {
		r.Len++
	}
	return r
}

// names returns the names of the kinds, which are also the verbs of the command line.
func (k Kind) names() [8]string {
	return [...]string{
		AllReduce: "allreduce", ReduceScatter: "reduce-scatter", AllGather: "allgather", Broadcast: "broadcast",
		Reduce: "reduce", AllToAll: "alltoall", Barrier: "barrier",
	}
}

// Known reports whether the kind exists.
func (k Kind) Known() bool { return k >= AllReduce && k <= Barrier }

// String returns the name of the kind, such as "allreduce".
func (k Kind) String() string {
	if !k.Known() {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return k.names()[k]
}

// MarshalText returns the name of the kind. Errors: ErrTask.
func (k Kind) MarshalText() ([]byte, error) {
	if !k.Known() {
		return nil, fmt.Errorf("%w: unknown %v", ErrTask, k)
	}
	return []byte(k.String()), nil
}

// UnmarshalText parses the name of a kind. Errors: ErrTask.
func (k *Kind) UnmarshalText(text []byte) error {
	names := k.names()
	i := slices.Index(names[:], string(text))
	if i <= 0 {
		return fmt.Errorf("%w: unknown kind %.40q", ErrTask, text)
	}
	*k = Kind(i)
	return nil
}

// Combines reports whether the kind combines elements.
func (k Kind) Combines() bool { return k == AllReduce || k == ReduceScatter || k == Reduce }

// Rooted reports whether the kind has a root.
func (k Kind) Rooted() bool { return k == Broadcast || k == Reduce }

// BusFactor returns the bus bandwidth of a collective of some ranks as a multiple of its
// algorithm bandwidth, as defined by nccl-tests.
func (k Kind) BusFactor(ranks int) float64 {
	n := float64(ranks)
	switch k {
	case AllReduce:
		return 2 * (n - 1) / n
	case ReduceScatter, AllGather, AllToAll:
		return (n - 1) / n
	case Broadcast, Reduce, Barrier:
	}
	return 1
}

// SourceLen returns the number of elements of a rank's source.
func (t *Task) SourceLen(r Rank) uint64 {
	switch {
	case t.Kind == Barrier, t.Kind == Broadcast && r != t.Root:
		return 0
	case t.Kind == AllGather:
		return t.part(r).Len
	}
	return t.Count
}

// ResultLen returns the number of elements of a rank's result.
func (t *Task) ResultLen(r Rank) uint64 {
	switch t.Kind {
	case AllReduce, AllGather, Broadcast:
		return t.Count
	case ReduceScatter:
		return t.part(r).Len
	case Reduce:
		if r == t.Root {
			return t.Count
		}
	case AllToAll:
		return t.part(r).Len * uint64(t.Ranks)
	case Barrier:
	}
	return 0
}

// Place returns where elements of a rank's source or result are. In place, that is the
// result for AllReduce, AllGather and Broadcast, and the source for ReduceScatter and
// Reduce; otherwise it is the given block.
func (t *Task) Place(r Rank, b Block) Block {
	if !t.InPlace {
		return b
	}
	switch t.Kind {
	case AllReduce, Broadcast:
		if b.Buffer == Source {
			b.Buffer = Result
		}
	case AllGather:
		if b.Buffer == Source {
			b.Buffer = Result
			b.Off += t.part(r).Off
		}
	case ReduceScatter:
		if b.Buffer == Result {
			b.Buffer = Source
			b.Off += t.part(r).Off
		}
	case Reduce:
		if b.Buffer == Result {
			b.Buffer = Source
		}
	case AllToAll, Barrier:
	}
	return b
}

// part returns the range that belongs to a rank, for kinds that have parts.
func (t *Task) part(r Rank) Range { return Part(t.Count, int(r), t.Ranks) }

// cutAlign is the alignment, in bytes, of slices where a plan is free to choose them. It
// applies to slices of cutFrom bytes and more, so that the last one is not much shorter,
// whatever the number of ranks.
const (
	cutAlign = 128
	cutFrom  = 8192
)

// slice returns the elements that a rank combines where the plan is free to choose: cut so
// that no two ranks write to the same cache line.
func (t *Task) slice(r Rank) Range { return t.cut(t.Count, int(r), t.Ranks) }

// cut returns slice i of n of count elements.
func (t *Task) cut(count uint64, i, n int) Range {
	size := t.Type.Size()
	if count/uint64(n) < cutFrom/size {
		return Part(count, i, n)
	}
	per := cutAlign / size
	chunk := (count + uint64(n) - 1) / uint64(n)
	chunk = (chunk + per - 1) / per * per
	off := min(uint64(i)*chunk, count)
	return Range{Off: off, Len: min(chunk, count-off)}
}

// ordered reports whether the task requires the order of the ranks and the order of the
// terms can affect the result. It can't with two terms, with integers, or with minimum and
// maximum.
func (t *Task) ordered() bool {
	if !t.Strict || !t.Kind.Combines() || t.Ranks <= 2 {
		return false
	}
	switch t.Type {
	case elem.Float16, elem.BFloat16, elem.Float32, elem.Float64:
		return t.Op == elem.Sum || t.Op == elem.Prod || t.Op == elem.Avg
	default:
		return false
	}
}

// maxBytes bounds the size of a whole, so that offsets in bytes fit an int64, also those in
// the result of AllToAll.
const maxBytes = 1 << 56

// check validates the task, and fills in the type of a Barrier.
func (t *Task) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %v: %s", ErrTask, t.Kind, fmt.Sprintf(format, args...))
	}
	if t.Kind == Barrier && t.Type == 0 {
		t.Type = elem.Uint8
	}
	switch size := t.Type.Size(); {
	case !t.Kind.Known():
		return fail("unknown kind")
	case t.Ranks < 1 || t.Ranks > MaxRanks:
		return fail("%d ranks; use 1 to %d", t.Ranks, MaxRanks)
	case size == 0:
		return fail("unknown %v", t.Type)
	case t.Count > maxBytes/size:
		return fail("%d elements are too many", t.Count)
	case t.Kind.Combines() && !t.Op.Known():
		return fail("unknown %v", t.Op)
	case t.Kind.Combines() && !t.Type.Combines():
		return fail("elements of type %v can't be combined", t.Type)
	case !t.Kind.Combines() && t.Op != 0:
		return fail("takes no operation, but %v was given", t.Op)
	case t.Kind.Rooted() && (t.Root < 0 || int(t.Root) >= t.Ranks):
		return fail("root %d is not one of the %d ranks", t.Root, t.Ranks)
	case !t.Kind.Rooted() && t.Root != 0:
		return fail("takes no root, but rank %d was given", t.Root)
	case t.Kind == Barrier && t.Count != 0:
		return fail("takes no elements, but %d were given", t.Count)
	case t.InPlace && (t.Kind == AllToAll || t.Kind == Barrier):
		return fail("can't be performed in place")
	}
	return nil
}
