package plan

import (
	"math/rand/v2"
	"testing"
)

// lentRunner returns a runner whose ranks send without copying where they may.
func lentRunner(p *Plan, r *rand.Rand) *runner {
	x := newRunner(p, p.all(), r)
	x.wire = make(map[[2]Rank][]sent)
	for q := range p.Task.Ranks {
		x.lent = append(x.lent, p.ZeroCopy(Rank(q)))
	}
	return x
}

// TestLend runs plans in random order with messages that are read from the sender's memory
// when they are received: sends that are reported as lendable do no harm in any algorithm.
func TestLend(t *testing.T) {
	t.Parallel()
	byChance(t, 11, lentRunner)
}

// TestLendAll checks that TestLend detects errors if everything is sent without copying.
func TestLendAll(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(12, 0))
	wrong := 0
	for n := 3; n <= 5; n++ {
		someTasks(n, func(task Task) {
			for _, a := range []Algorithm{Ring, Doubling, NHR} {
				p, err := Compile(task, Shape{}, a)
				if err != nil {
					continue
				}
				x := lentRunner(p, r)
				for q, lent := range x.lent {
					for i := range lent {
						lent[i] = x.programs[q][i].Action == Send
					}
				}
				if x.run() && x.right() != nil {
					wrong++
				}
			}
		})
	}
	if wrong == 0 {
		t.Error("to lend what is written over does no harm")
	}
}

// TestLendRing checks what a ring may send without copying: everything of an all-reduce in
// place, the case in which copies slow its links down.
func TestLendRing(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 4, 7, 16, 64} {
		task := allReduce(n, 1<<20)
		task.InPlace = true
		p := compile(t, task, Shape{}, Ring)
		messages, lends := 0, 0
		for r := range n {
			k, _ := countSent(p.Program(Rank(r)))
			messages += k
			for _, l := range p.ZeroCopy(Rank(r)) {
				if l {
					lends++
				}
			}
		}
		if lends < messages {
			t.Errorf("%d ranks lend %d of %d messages", n, lends, messages)
		}
	}
}
