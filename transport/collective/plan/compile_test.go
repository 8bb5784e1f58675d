package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// shapes returns ways in which n ranks may be connected.
func shapes(n int) []Shape {
	reversed := make([]Rank, n)
	for i := range reversed {
		reversed[i] = Rank((2*n - 1 - i + n/3) % n)
	}
	pairs, uneven, mixed := make([]int, n), make([]int, n), make([]int, n)
	for i := range n {
		pairs[i] = i / 2
		uneven[i] = min(i/3, 2) // the last node has the rest
		mixed[i] = i % 3        // the ranks of a node are not neighbours
	}
	return []Shape{
		{Mapped: true},
		{Order: reversed},
		{Nodes: pairs},
		{Nodes: uneven},
		{Nodes: mixed, Order: reversed},
	}
}

// everyTask calls do with all tasks of n ranks for which plans may differ.
func everyTask(n int, counts []uint64, do func(Task)) {
	do(Task{Kind: Barrier, Ranks: n})
	for k := AllReduce; k < Barrier; k++ {
		roots := []Rank{0}
		if k.Rooted() {
			for r := 1; r < n; r += max(1, n/3) {
				roots = append(roots, Rank(r))
			}
		}
		for i, count := range counts {
			// Averages are tested for other counts.
			average := i == 0 || count >= 100
			for _, root := range roots {
				variants(Task{Kind: k, Ranks: n, Count: count, Type: elem.Float32, Root: root}, average, do)
			}
		}
	}
}

// variants calls do with the variants of a task.
func variants(t Task, average bool, do func(Task)) {
	ops := []elem.Op{0}
	if t.Kind.Combines() {
		ops = []elem.Op{elem.Sum}
		if average {
			ops = append(ops, elem.Avg)
		}
	}
	for _, op := range ops {
		t.Op = op
		for i := range 4 {
			t.InPlace, t.Strict = i&1 != 0, i&2 != 0
			if (!t.InPlace || t.Kind != AllToAll) && (!t.Strict || op != 0) {
				do(t)
			}
		}
	}
}

func counts(n uint64) []uint64 {
	return []uint64{n + 1, 0, 1, n - 1, n, 100, 1000, 1<<20 + 3}
}

// TestEveryPlan proves the plans of all algorithms.
func TestEveryPlan(t *testing.T) {
	t.Parallel()
	for n := 1; n <= kit.Rounds(6, 10, 16); n++ {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			for i, s := range shapes(n) {
				some := counts(uint64(n))
				if i > 0 {
					some = []uint64{uint64(n) + 1, 1<<20 + 3}
				}
				everyTask(n, some, func(task Task) {
					if i > 0 && (task.Strict || task.Op == elem.Avg) {
						return
					}
					for _, a := range Algorithms() {
						prove(t, task, s, a)
					}
				})
			}
		})
	}
}

// TestLargePlans proves some plans for more ranks.
func TestLargePlans(t *testing.T) {
	t.Parallel()
	for _, n := range []int{17, 31, 33, 48, 63, 64} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, uint64(n)))
			for _, s := range shapes(n) {
				everyTask(n, []uint64{1<<20 + 3, uint64(n) + 1}, func(task Task) {
					for _, a := range Algorithms() {
						if r.IntN(kit.Rounds(400, 120, 40)) == 0 {
							prove(t, task, s, a)
						}
					}
				})
			}
		})
	}
}

func prove(t *testing.T, task Task, s Shape, a Algorithm) {
	t.Helper()
	p, err := Compile(task, s, a)
	if errors.Is(err, ErrAlgorithm) {
		return
	}
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		t.Errorf("%s of %+v in %+v: %v", a, task, s, err)
	}
}
