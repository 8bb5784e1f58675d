package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
)

func compile(t *testing.T, task Task, s Shape, a Algorithm) *Plan {
	t.Helper()
	p, err := Compile(task, s, a)
	if err != nil {
		t.Fatalf("%s of %+v: %v", a, task, err)
	}
	return p
}

// countSent returns the numbers of messages and elements that a program sends.
func countSent(p Program) (messages int, elements uint64) {
	for _, s := range p {
		if s.Action == Send {
			messages++
			elements += s.Block.Len
		}
	}
	return messages, elements
}

// TestRingSends: 2(N-1) slices, and 2(N-1)/N of the bytes apart from rounding.
func TestRingSends(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 16; n++ {
		for _, count := range []uint64{uint64(n), 1000, 1<<20 + 3} {
			for _, a := range []Algorithm{Ring, NHR, Pairwise, Ordered} {
				p := compile(t, Task{Kind: AllReduce, Ranks: n, Count: count, Type: elem.Float32, Op: elem.Sum}, Shape{}, a)
				for r, program := range p.all() {
					messages, elements := countSent(program)
					if messages != 2*(n-1) {
						t.Errorf("%s: rank %d of %d sends %d messages", a, r, n, messages)
					}
					want := 2 * uint64(n-1) * count / uint64(n)
					if slack := uint64(n * n * cutAlign); elements+slack < want || elements > want+slack {
						t.Errorf("%s: rank %d of %d sends %d elements, not %d", a, r, n, elements, want)
					}
				}
			}
		}
	}
}

// TestBinomialDepth: the root sends ceil(log2 N) messages, and no path is longer.
func TestBinomialDepth(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		for root := range n {
			p := compile(t, Task{Kind: Broadcast, Ranks: n, Count: 7, Type: elem.Int8, Root: Rank(root), InPlace: true}, Shape{}, Binomial)
			depth := 0
			for 1<<depth < n {
				depth++
			}
			all := p.all()
			if messages, _ := countSent(all[root]); messages != depth {
				t.Errorf("root %d of %d sends %d messages, not %d", root, n, messages, depth)
			}
			for r := range all {
				hops := 0
				for q := r; q != root; hops++ {
					i := slices.IndexFunc(all[q], func(s Step) bool { return s.Action == Receive })
					q = int(all[q][i].Peer)
				}
				if hops > depth {
					t.Errorf("rank %d of %d is %d hops from root %d", r, n, hops, root)
				}
			}
		}
	}
}

// TestBarrierSends: each rank sends ceil(log2 N) messages.
func TestBarrierSends(t *testing.T) {
	t.Parallel()
	for n := 1; n <= MaxRanks; n++ {
		p := compile(t, Task{Kind: Barrier, Ranks: n}, Shape{}, Dissemination)
		for r, program := range p.all() {
			if messages, _ := countSent(program); messages != rounds(n) {
				t.Errorf("rank %d of %d sends %d messages, not %d", r, n, messages, rounds(n))
			}
		}
	}
}

// TestLinksInPlace: the messages do not depend on which ranks are in place.
func TestLinksInPlace(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		for _, s := range shapes(n) {
			someTasks(n, func(task Task) {
				for _, a := range Algorithms() {
					if p, err := Compile(task, s, a); err == nil && task.InPlace {
						sameLinks(t, p)
					}
				}
			})
		}
	}
}

// sameLinks compares a plan in place with the one not in place.
func sameLinks(t *testing.T, p *Plan) {
	t.Helper()
	out := p.Task
	out.InPlace = false
	o := compile(t, out, p.Shape, p.Algorithm)
	for r := range Rank(p.Task.Ranks) {
		if !slices.Equal(links(p.Program(r)), links(o.Program(r))) {
			t.Errorf("%s of %+v in %+v: rank %d sends other messages in place", p.Algorithm, p.Task, p.Shape, r)
		}
	}
}

// links returns the steps of a program that use links.
func links(p Program) []string {
	var all []string
	for _, s := range p {
		if s.Action <= ReceiveCombine || s.Action == Sync {
			all = append(all, fmt.Sprint(min(s.Action, Receive), s.Peer, s.Block.Len))
		}
	}
	return all
}

// TestSomethingForEverything: every task has an algorithm, in every shape.
func TestSomethingForEverything(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		for _, s := range shapes(n) {
			someTasks(n, func(task Task) {
				if _, err := Estimates(task, s, Costs{}); err != nil {
					t.Errorf("%+v in %+v: %v", task, s, err)
				}
			})
		}
	}
}
