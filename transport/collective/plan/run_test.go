package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// sent is an element in transit: its value, or its location.
type sent struct {
	value string
	at    *string
}

// runner runs programs in random order, under exactly the rules of the package comment. It
// shares no code with the checker: an element is a list of its contributions.
type runner struct {
	plan     *Plan
	programs []Program
	// done is the number of elements of each step that are done; a Sync has one.
	done [][]uint64
	// mem is indexed by rank and buffer.
	mem [][Scratch + 1][]string
	// wire holds the elements in transit; if nil, links hold none: an element is sent when
	// it is received.
	wire map[[2]Rank][]sent
	// lent reports which steps send without copying.
	lent [][]bool
	rand *rand.Rand
	// waits holds Program.Waits, used instead of the rule itself.
	waits [][][]Wait
}

func newRunner(p *Plan, programs []Program, r *rand.Rand) *runner {
	x := &runner{plan: p, programs: programs, rand: r, mem: make([][Scratch + 1][]string, len(programs))}
	if r.IntN(2) == 0 {
		x.wire = make(map[[2]Rank][]sent)
	}
	c := checker{plan: p, task: &p.Task}
	for q, program := range programs {
		x.done = append(x.done, make([]uint64, len(program)))
		x.waits = append(x.waits, program.Waits())
		for b := Source; b <= Scratch; b++ {
			x.mem[q][b] = slices.Repeat([]string{"?"}, int(c.size(Rank(q), b)))
		}
		k := p.Task.Place(Rank(q), Block{Source, Range{Len: p.Task.SourceLen(Rank(q))}})
		for i := range k.Len {
			x.mem[q][k.Buffer][k.Off+i] = fmt.Sprintf("%d:%d", q, i)
		}
	}
	if r.IntN(2) == 0 {
		x.waits = nil
	}
	return x
}

func (x *runner) length(r, i int) uint64 { return max(x.programs[r][i].Block.Len, 1) }

// free reports whether the next element of a step may be processed.
func (x *runner) free(r, i int) bool {
	s, next := &x.programs[r][i], x.done[r][i]
	if next == x.length(r, i) {
		return false
	}
	if x.waits != nil {
		for _, w := range x.waits[r][i] {
			if got := x.done[r][w.Step]; got < x.length(r, w.Step) && (!w.Follow || got <= next) {
				return false
			}
		}
	}
	for j := range i {
		e := &x.programs[r][j]
		if x.done[r][j] == x.length(r, j) {
			continue
		}
		if x.waits == nil {
			if meet, same := s.overlaps(e); meet && (!same || x.done[r][j] <= next) {
				return false
			}
		}
		receive := func(a Action) bool { return a == Receive || a == ReceiveCombine }
		switch {
		case s.Action == Send && e.Action == Send && s.Peer == e.Peer,
			receive(s.Action) && receive(e.Action) && s.Peer == e.Peer:
			return false
		}
	}
	return true
}

// cell is an element of a rank's memory.
func (x *runner) cell(r Rank, k Block, i uint64) *string { return &x.mem[r][k.Buffer][k.Off+i] }

func join(a, b string) string { return "(" + min(a, b) + "+" + max(a, b) + ")" }

// step processes the next element of a step, if possible.
func (x *runner) step(r, i int) bool {
	if !x.free(r, i) {
		return false
	}
	s, n, q := &x.programs[r][i], x.done[r][i], Rank(r)
	to := func() *string { return x.cell(q, s.Block, n) }
	switch s.Action {
	case Send:
		if x.wire == nil {
			return false // its receiver does it
		}
		k := [2]Rank{q, s.Peer}
		v := sent{value: *to()}
		if x.lent != nil && x.lent[r][i] {
			v.at = to()
		}
		x.wire[k] = append(x.wire[k], v)
	case Receive, ReceiveCombine:
		v, ok := x.take(s.Peer, q)
		if !ok {
			return false
		}
		if s.Action == ReceiveCombine {
			v = join(*x.cell(q, s.From, n), v)
		}
		*to() = v
	case Copy:
		*to() = *x.cell(q, s.From, n)
	case CombineFrom:
		*to() = join(*to(), *x.cell(q, s.From, n))
	case DivideBy:
		*to() = "/" + *to()
	case Fetch:
		*to() = *x.cell(s.Peer, s.From, n)
	case Fold:
		v := *x.cell(0, s.From, n)
		for p := 1; p < len(x.programs); p++ {
			v = join(v, *x.cell(Rank(p), s.From, n))
		}
		if x.plan.Task.Op == elem.Avg && len(x.programs) > 1 {
			v = "/" + v
		}
		for _, p := range s.To {
			*x.cell(p, s.Block, n) = v
		}
	case Sync:
		return x.sync()
	}
	x.done[r][i]++
	return true
}

// take receives an element.
func (x *runner) take(from, to Rank) (string, bool) {
	if x.wire != nil {
		k := [2]Rank{from, to}
		if len(x.wire[k]) == 0 {
			return "", false
		}
		v := x.wire[k][0]
		x.wire[k] = x.wire[k][1:]
		if v.at != nil {
			return *v.at, true
		}
		return v.value, true
	}
	for i := range x.programs[from] {
		s := &x.programs[from][i]
		if s.Action == Send && s.Peer == to && x.free(int(from), i) {
			v := *x.cell(from, s.Block, x.done[from][i])
			x.done[from][i]++
			return v, true
		}
	}
	return "", false
}

// sync executes the next Sync of all ranks.
func (x *runner) sync() bool {
	at := make([]int, len(x.programs))
	for r, program := range x.programs {
		at[r] = slices.IndexFunc(program, func(s Step) bool { return s.Action == Sync })
		for at[r] >= 0 && x.done[r][at[r]] == 1 {
			next := slices.IndexFunc(program[at[r]+1:], func(s Step) bool { return s.Action == Sync })
			if next < 0 {
				return false
			}
			at[r] += next + 1
		}
		if at[r] < 0 || !x.free(r, at[r]) {
			return false
		}
	}
	for r := range at {
		x.done[r][at[r]] = 1
	}
	return true
}

// run runs everything, and reports whether it ended.
func (x *runner) run() bool {
	type place struct{ r, i int }
	var all []place
	for r, program := range x.programs {
		for i := range program {
			all = append(all, place{r, i})
		}
	}
	for {
		moved := false
		x.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, p := range all {
			for range 1 + x.rand.IntN(4) {
				moved = x.step(p.r, p.i) || moved
			}
		}
		if !moved {
			break
		}
	}
	for r := range x.programs {
		for i := range x.programs[r] {
			if x.done[r][i] < x.length(r, i) {
				return false
			}
		}
	}
	for _, left := range x.wire {
		if len(left) > 0 {
			return false
		}
	}
	return true
}

// terms returns the contributions of an element, sorted.
func terms(v string) []string {
	all := slices.Collect(func(yield func(string) bool) {
		for from, i := 0, 0; i <= len(v); i++ {
			if i < len(v) && v[i] != '(' && v[i] != ')' && v[i] != '+' && v[i] != '/' {
				continue
			}
			if i > from && !yield(v[from:i]) {
				return
			}
			from = i + 1
		}
	})
	slices.Sort(all)
	return all
}

// want returns the expected contributions of an element of a rank's result.
func want(t *Task, r Rank, i uint64) []string {
	own := Part(t.Count, int(r), t.Ranks)
	var all []string
	for q := range t.Ranks {
		part := Part(t.Count, q, t.Ranks)
		switch t.Kind {
		case AllReduce, Reduce:
			all = append(all, fmt.Sprintf("%d:%d", q, i))
		case ReduceScatter:
			all = append(all, fmt.Sprintf("%d:%d", q, own.Off+i))
		case Broadcast:
			all = []string{fmt.Sprintf("%d:%d", t.Root, i)}
		case AllGather:
			if i >= part.Off && i < part.End() {
				all = []string{fmt.Sprintf("%d:%d", q, i-part.Off)}
			}
		case AllToAll:
			if i/own.Len == uint64(q) {
				all = []string{fmt.Sprintf("%d:%d", q, own.Off+i%own.Len)}
			}
		case Barrier:
		}
	}
	slices.Sort(all)
	return all
}

// right checks the results of a plan.
func (x *runner) right() error {
	t := &x.plan.Task
	for r := range Rank(t.Ranks) {
		for i := range t.ResultLen(r) {
			have := *x.cell(r, t.Place(r, Block{Result, Range{Len: t.ResultLen(r)}}), i)
			divided := t.Op == elem.Avg && t.Ranks > 1
			if want := want(t, r, i); !slices.Equal(terms(have), want) || have[0] == '/' != divided {
				return fmt.Errorf("element %d of rank %d is %s, not of %v", i, r, have, want)
			}
			if t.Kind == AllReduce && have != *x.cell(0, t.Place(0, Block{Buffer: Result}), i) {
				return fmt.Errorf("element %d of rank %d is %s, another sum than at rank 0", i, r, have)
			}
		}
	}
	return nil
}

// someTasks are tasks of few elements.
func someTasks(n int, do func(Task)) {
	everyTask(n, []uint64{uint64(2*n + 1)}, do)
}

// TestRunByChance runs plans in random orders: the properties proved by the checker hold in
// each.
func TestRunByChance(t *testing.T) {
	t.Parallel()
	byChance(t, 7, func(p *Plan, r *rand.Rand) *runner { return newRunner(p, p.all(), r) })
}

// byChance runs a third of all plans.
func byChance(t *testing.T, seed uint64, runnerOf func(p *Plan, r *rand.Rand) *runner) {
	t.Helper()
	everyPlan(t, 7, seed, func(t *testing.T, p *Plan, r *rand.Rand) {
		t.Helper()
		if r.IntN(3) > 0 {
			return
		}
		x := runnerOf(p, r)
		if !x.run() {
			t.Errorf("%s of %+v in %+v does not end", p.Algorithm, p.Task, p.Shape)
		} else if err := x.right(); err != nil {
			t.Errorf("%s of %+v in %+v: %v", p.Algorithm, p.Task, p.Shape, err)
		}
	})
}

// everyPlan does something with the plans of some tasks for 2 to most ranks, in
// parallel.
func everyPlan(t *testing.T, most int, seed uint64, do func(t *testing.T, p *Plan, r *rand.Rand)) {
	t.Helper()
	for n := 2; n <= most; n++ {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			for _, s := range shapes(n) {
				someTasks(n, func(task Task) {
					for _, a := range Algorithms() {
						if p, err := Compile(task, s, a); err == nil {
							do(t, p, r)
						}
					}
				})
			}
		})
	}
}

func (p *Plan) all() []Program {
	var all []Program
	for r := range p.Task.Ranks {
		all = append(all, p.Program(Rank(r)))
	}
	return all
}

// TestMutants damages plans: if the checker accepts a damaged plan, the plan must still be
// correct.
func TestMutants(t *testing.T) {
	t.Parallel()
	everyPlan(t, 6, 9, func(t *testing.T, p *Plan, r *rand.Rand) {
		t.Helper()
		for range 3 {
			mutate(t, p, r)
		}
	})
}

// mutate damages a plan in one way, and checks it.
func mutate(t *testing.T, p *Plan, r *rand.Rand) {
	t.Helper()
	all := p.all()
	q := r.IntN(len(all))
	if len(all[q]) == 0 {
		return
	}
	i := r.IntN(len(all[q]))
	damaged := slices.Clone(all[q])
	s := &damaged[i]
	// found reports that such damage is never harmless.
	what, found := "", true
	switch r.IntN(5) {
	case 0:
		what = "dropped"
		// The last message of a Barrier need not be passed on.
		found = p.Task.Kind != Barrier || s.Action != Copy
		damaged = slices.Delete(damaged, i, i+1)
	case 1:
		what = "doubled"
		found = s.Action != Copy && s.Action != Fetch && s.Action != Fold
		damaged = slices.Insert(damaged, i, *s)
	case 2:
		what, found = "swapped", false
		j := r.IntN(len(damaged))
		damaged[i], damaged[j] = damaged[j], damaged[i]
	case 3:
		what = "shifted"
		found = p.Task.Kind != Barrier
		if s.Action == Sync {
			return
		}
		s.Block.Off++
	case 4:
		what = "shortened"
		if s.Action == Sync || s.Block.Len < 2 {
			return
		}
		s.Block.Len--
		s.From.Len = s.Block.Len
	}
	step := all[q][i]
	all[q] = damaged
	err := check(p, all)
	switch {
	case err == nil && found:
		t.Errorf("%s of %+v in %+v: rank %d, step %d (%v) %s: not found", p.Algorithm, p.Task, p.Shape, q, i, step, what)
	case err == nil:
		for range 4 {
			x := newRunner(p, all, r)
			if !x.run() {
				t.Errorf("%s of %+v: rank %d, step %d (%v) %s: does not end", p.Algorithm, p.Task, q, i, step, what)
			} else if err := x.right(); err != nil {
				t.Errorf("%s of %+v: rank %d, step %d (%v) %s: %v", p.Algorithm, p.Task, q, i, step, what, err)
			}
		}
	}
}
