package plan

import (
	"errors"
	"slices"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// Errors that callers distinguish.
var (
	// ErrTask reports a task that is invalid.
	ErrTask = errors.New("plan: invalid task")
	// ErrAlgorithm reports an algorithm that does not exist, or can't do a task in a shape.
	ErrAlgorithm = errors.New("plan: unsuitable algorithm")
	// ErrStale reports an encoded plan of another version, or for another topology.
	ErrStale = errors.New("plan: stale, made for another version or topology")
	// ErrWrong reports a plan that does not do its task.
	ErrWrong = errors.New("plan: incorrect plan")
)

// Algorithm names an algorithm for collectives.
type Algorithm string

// The algorithms. N is the number of ranks, S the size of the whole in bytes.
const (
	// Ring passes parts around: N-1 steps to scatter, N-1 to gather.
	Ring Algorithm = "ring"
	// Doubling is recursive doubling: log2 N exchanges of everything; ranks beyond a power
	// of two first send theirs to a partner.
	Doubling Algorithm = "doubling"
	// NHR is the non-uniform hierarchical ring: any N, ceil(log2 N) steps to scatter and as
	// many to gather, each part sent once.
	NHR Algorithm = "nhr"
	// Binomial is a binomial tree: ceil(log2 N) steps.
	Binomial Algorithm = "binomial"
	// Chain passes everything along a line, in pieces.
	Chain Algorithm = "chain"
	// Pairwise has each pair of ranks exchange their data for each other.
	Pairwise Algorithm = "pairwise"
	// Dissemination is a barrier of ceil(log2 N) steps.
	Dissemination Algorithm = "dissemination"
	// Direct has each rank combine its part directly from memory that all have mapped.
	Direct Algorithm = "direct"
	// Ordered is Pairwise in which the owner of a part combines in the order of the ranks:
	// for Strict without mapped memory.
	Ordered Algorithm = "ordered"
	// Hierarchical works inside each node, between the nodes, and inside each node again.
	Hierarchical Algorithm = "hierarchical"
)

// Shape describes how the ranks of a plan are connected. It is the same at every rank.
type Shape struct {
	// Order lists the ranks as a ring that uses the fast links. Nil means 0, 1, 2, …
	Order []Rank `json:"order,omitempty"`
	// Nodes holds the node of each rank. Nil means that all are on one node.
	Nodes []int `json:"nodes,omitempty"`
	// Mapped reports that ranks of one node have each other's memory mapped.
	Mapped bool `json:"mapped,omitempty"`
	// Topology is the hash of the topology from which the shape was derived.
	Topology string `json:"topology,omitempty"`
}

// Plan is a task and the way to do it. It is immutable.
type Plan struct {
	Task      Task
	Shape     Shape
	Algorithm Algorithm
	// Scratch is the number of elements of scratch memory that each rank needs.
	Scratch uint64
}

// Algorithms returns all algorithms. Of two with the same estimate, the first is chosen.
func Algorithms() []Algorithm {
	return []Algorithm{
		Ring, NHR, Doubling, Binomial, Chain, Pairwise, Dissemination, Direct, Ordered, Hierarchical,
	}
}

// Known reports whether the algorithm exists.
func (a Algorithm) Known() bool { return slices.Contains(Algorithms(), a) }

// Can checks whether an algorithm can do a task in a shape.
//
// Errors: ErrTask, ErrAlgorithm.
func Can(t Task, s Shape, a Algorithm) error {
	if err := t.check(); err != nil {
		return err
	}
	if err := s.check(t.Ranks); err != nil {
		return err
	}
	return can(&t, &s, a)
}

// Compile makes the plan of a task for an algorithm.
//
// Errors: ErrTask; ErrAlgorithm.
func Compile(t Task, s Shape, a Algorithm) (*Plan, error) {
	if err := Can(t, s, a); err != nil {
		return nil, err
	}
	if t.Kind == Barrier && t.Type == 0 {
		t.Type = elem.Uint8
	}
	p := &Plan{Task: t, Shape: s.clone(), Algorithm: a}
	for r := range t.Ranks {
		p.Scratch = max(p.Scratch, p.Program(Rank(r)).scratch())
	}
	return p, nil
}

// Program returns the steps of a rank. It is made anew on each call.
func (p *Plan) Program(r Rank) Program {
	b := newBuilder(p, r)
	switch p.Algorithm {
	case Ring:
		b.ring()
	case Doubling:
		b.doubling()
	case Binomial:
		b.binomial()
	case NHR:
		b.nhr()
	case Chain:
		b.chain()
	case Pairwise:
		b.pairwise()
	case Ordered:
		b.ordered()
	case Dissemination:
		b.all.disseminate(b.barrierMessages())
	case Direct:
		b.direct()
	case Hierarchical:
		b.hierarchical()
	}
	return b.steps
}

// scratch returns the number of elements of scratch that a program uses.
func (p Program) scratch() uint64 {
	n := uint64(0)
	for i := range p {
		for _, k := range [...]Block{p[i].Block, p[i].From} {
			if k.Buffer == Scratch {
				n = max(n, k.End())
			}
		}
	}
	return n
}

// Check proves the plan for all ranks: see the package comment.
//
// Errors: ErrWrong, which describes the problem, with the rank and the step or element.
func (p *Plan) Check() error {
	programs := make([]Program, p.Task.Ranks)
	for r := range programs {
		programs[r] = p.Program(Rank(r))
	}
	return check(p, programs)
}
