package topology

import (
	"fmt"
	"math"
	"slices"
)

// MaxRing is the most places of a ring.
const MaxRing = 64

// exactRing is up to how many places every order is looked at.
const exactRing = 8

// Ring orders ranks so that neighbours reach each other fast: places[r] is the
// device of rank r, and several ranks may be on one. The slowest link of the
// ring is as fast as can be, and of all orders with such a link the one is taken
// that is fastest in sum, for messages of size bytes. It begins with rank 0.
//
// Up to 8 ranks the order is the best; for more it is good: the nearest next one
// from many beginnings, then pairs of links exchanged as long as that helps.
//
// Errors: ErrUnknown; ErrNoRoute; ErrFile for more than MaxRing places.
func (g *Graph) Ring(places []ID, size uint64) ([]int, error) {
	if len(places) > MaxRing {
		return nil, fault("places", "%d ranks; a ring has at most %d", len(places), MaxRing)
	}
	times, err := g.times(places, size)
	if err != nil {
		return nil, err
	}
	n := len(places)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	t := &tour{times: times}
	switch {
	case n < 4:
		// All orders are the same ring.
	case n <= exactRing:
		order = t.best(order)
	default:
		order = t.good(n)
	}
	return canonical(order), nil
}

// times returns the time of a message between each two places.
func (g *Graph) times(places []ID, size uint64) ([][]float64, error) {
	at := make([]int, len(places))
	for r, id := range places {
		i, err := g.find(id)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		at[r] = i
	}
	known := map[int][]float64{}
	times := make([][]float64, len(places))
	for r := range places {
		row, is := known[at[r]]
		if !is {
			row = g.reach(at[r], at, size)
			known[at[r]] = row
		}
		times[r] = row
		for o := range row {
			if math.IsInf(row[o], 1) {
				return nil, fmt.Errorf("%w: %s and %s", ErrNoRoute, places[r], places[o])
			}
		}
	}
	// Rounding must not depend on the direction.
	for r := range times {
		for o := range r {
			times[r][o] = times[o][r]
		}
	}
	return times, nil
}

// reach is the time from a device to each of others; infinite for none.
func (g *Graph) reach(from int, others []int, size uint64) []float64 {
	row := make([]float64, len(others))
	left := 0
	for o, at := range others {
		if row[o] = math.Inf(1); at == from {
			row[o] = 0
			continue
		}
		left++
	}
	s := g.newSearch(from, size)
	for l := s.next(); l != nil && left > 0; l = s.next() {
		for o, at := range others {
			if at == l.at && math.IsInf(row[o], 1) {
				row[o] = l.seconds
				left--
			}
		}
	}
	return row
}

// tour compares rings.
type tour struct{ times [][]float64 }

// cost ranks a ring: by its slowest link, then their sum.
type cost struct{ slowest, sum float64 }

func (c cost) less(o cost) bool {
	if !same(c.slowest, o.slowest) {
		return c.slowest < o.slowest
	}
	return !same(c.sum, o.sum) && c.sum < o.sum
}

func (t *tour) cost(order []int) cost {
	var c cost
	for i, r := range order {
		step := t.times[r][order[(i+1)%len(order)]]
		c.slowest = max(c.slowest, step)
		c.sum += step
	}
	return c
}

// best looks at every ring that begins with the first rank.
func (t *tour) best(order []int) []int {
	found, least := slices.Clone(order), t.cost(order)
	var permute func(k int)
	permute = func(k int) {
		if k == len(order) {
			// The other direction is the same ring.
			if order[1] < order[len(order)-1] {
				if c := t.cost(order); c.less(least) {
					least = c
					copy(found, order)
				}
			}
			return
		}
		for i := k; i < len(order); i++ {
			order[k], order[i] = order[i], order[k]
			permute(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	permute(1)
	return found
}

// maxStarts is from how many places a ring is begun.
const maxStarts = 16

// good finds a ring that no exchange of two links makes better.
func (t *tour) good(n int) []int {
	var found []int
	var least cost
	for first := 0; first < n; first += (n + maxStarts - 1) / maxStarts {
		order := t.improve(t.greedy(n, first))
		if c := t.cost(order); found == nil || c.less(least) {
			found, least = order, c
		}
	}
	return found
}

// greedy goes to the nearest place that it has not been at.
func (t *tour) greedy(n, first int) []int {
	order := []int{first}
	seen := make([]bool, n)
	seen[first] = true
	for len(order) < n {
		here, next := order[len(order)-1], -1
		for o := range n {
			if !seen[o] && (next < 0 || t.times[here][o] < t.times[here][next] && !same(t.times[here][o], t.times[here][next])) {
				next = o
			}
		}
		seen[next] = true
		order = append(order, next)
	}
	return order
}

// maxPasses bounds the search where many rings are nearly as good.
const maxPasses = 16

// improve turns stretches of the ring round, and moves single ranks, as long as
// that helps.
func (t *tour) improve(order []int) []int {
	least := t.cost(order)
	for range maxPasses {
		changed := false
		for i := range order {
			for j := i + 1; j < len(order); j++ {
				for _, change := range []func([]int, int, int) func(){turn, shift} {
					undo := change(order, i, j)
					if c := t.cost(order); c.less(least) {
						least, changed = c, true
						continue
					}
					undo()
				}
			}
		}
		if !changed {
			break
		}
	}
	return order
}

// turn turns order[i:j+1] round.
func turn(order []int, i, j int) (undo func()) {
	slices.Reverse(order[i : j+1])
	return func() { slices.Reverse(order[i : j+1]) }
}

// shift moves order[i] behind order[j].
func shift(order []int, i, j int) (undo func()) {
	moved := order[i]
	copy(order[i:j], order[i+1:j+1])
	order[j] = moved
	return func() {
		copy(order[i+1:j+1], order[i:j])
		order[i] = moved
	}
}

// canonical turns a ring so that it begins with 0 and goes on with the smaller
// neighbour.
func canonical(order []int) []int {
	at := slices.Index(order, 0)
	if at < 0 {
		return order
	}
	out := slices.Concat(order[at:], order[:at])
	if len(out) > 2 && out[1] > out[len(out)-1] {
		slices.Reverse(out[1:])
	}
	return out
}
