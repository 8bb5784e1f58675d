package plan

import "github.com/hmcfs/hmcfs/devices/elem"

// Rank is a rank of the group that runs the plan, from 0.
type Rank int

// MaxRanks is the most ranks of a plan.
const MaxRanks = 64

// Kind is what is done together. Its numbers are on the wire.
type Kind uint8

// The kinds. Parts are those of Part: where count does not divide by the number
// of ranks, the first ones get one element more.
const (
	// AllReduce combines the sources of all, for all.
	AllReduce Kind = iota + 1
	// ReduceScatter combines the sources of all; each rank gets its part.
	ReduceScatter
	// AllGather has each rank's part as its source; each gets all parts.
	AllGather
	// Broadcast gives every rank what the root has.
	Broadcast
	// Reduce combines the sources of all, for the root.
	Reduce
	// AllToAll gives rank r part r of every source, in the order of the ranks:
	// it gets as many times its part as there are ranks.
	AllToAll
	// Barrier is over for no rank before all have come to it.
	Barrier
)

// Task is what is to be done. It is the same at every rank.
type Task struct {
	Kind  Kind
	Ranks int
	// Count is the elements of the whole: of the sources for AllReduce,
	// ReduceScatter, Reduce and AllToAll, of the results for AllGather and
	// Broadcast, and 0 for Barrier.
	Count uint64
	Type  elem.Type
	// Op is 0 where nothing is combined.
	Op elem.Op
	// Root is 0 where there is none.
	Root Rank
	// InPlace says that source and result begin at the same element of the same
	// memory: for ReduceScatter the result is where its part is in the source,
	// and for AllGather the source where its part is in the result. There is no
	// AllToAll in place.
	InPlace bool
	// Strict says that elements are combined in the order of the ranks.
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
