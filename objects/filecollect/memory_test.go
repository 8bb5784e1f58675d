package filecollect

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// placed is a group of which only rank and size are used.
type placed struct {
	Group
	n int
}

func (p placed) Rank() plan.Rank { return 0 }

func (p placed) Size() int { return p.n }

// TestMemoryOfSegments: wherever the files are, a request for a collective makes the nodes
// allocate only a little memory for it.
func TestMemoryOfSegments(t *testing.T) {
	for nodes := 1; nodes <= plan.MaxRanks; nodes++ {
		of := make([]int, plan.MaxRanks)
		for i := range nodes {
			of[i] = i
		}
		for kind := plan.AllReduce; kind <= plan.AllToAll; kind++ {
			task := Task{Kind: kind, Type: elem.Float32, Ranks: plan.MaxRanks, Size: 1 << 40, Strict: true}
			if kind.Combines() {
				task.Op = elem.Sum
			}
			r := newRounds(task, nil, &Nodes{Group: placed{n: nodes}, Of: of})
			in, out := r.factors()
			if most := r.piece * uint64(max(in, out)); r.piece == 0 || r.piece%64 != 0 || most > 32<<20 {
				t.Errorf("%v of %d files on %d nodes: %d bytes in pieces of %d", kind, len(of), nodes, most, r.piece)
			}
		}
	}
}
