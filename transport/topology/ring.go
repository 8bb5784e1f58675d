package topology

import (
	"fmt"
	"math"
	"slices"
)

// MaxRing is the maximum number of places of a ring.
const MaxRing = 64

// exactRing is the maximum number of places for which every order is examined.
const exactRing = 8

// Ring orders ranks so that neighbours reach each other fast: places[r] is the
// device of rank r, and several ranks may share a device. The slowest link of the
// ring is as fast as possible, and among all orders with such a link it chooses
// the one with the smallest sum of times, for messages of size bytes. The order
// starts with rank 0.
//
// Up to 8 ranks the order is optimal; for more it is a good one: nearest
// neighbour from several starts, then improved by reversing stretches and moving
// single ranks as long as that helps.
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

// reach returns the time from a device to each of others; infinite if
// unreachable.
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

// cost ranks a ring: by its slowest link, then by the sum of its links.
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

// best examines every ring that starts with the first rank.
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

// maxStarts is the maximum number of places from which a ring is started.
const maxStarts = 16

// good finds a ring that no single change of improve makes better.
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

// greedy always goes to the nearest place that it has not visited.
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

// maxPasses bounds the search if many rings are nearly as good.
const maxPasses = 16

// improve reverses stretches of the ring, and moves single ranks, as long as that
// helps.
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

// turn reverses order[i:j+1].
func turn(order []int, i, j int) (undo func()) {
	slices.Reverse(order[i : j+1])
	return func() { slices.Reverse(order[i : j+1]) }
}

// shift moves order[i] to the place after order[j].
func shift(order []int, i, j int) (undo func()) {
	moved := order[i]
	copy(order[i:j], order[i+1:j+1])
	order[j] = moved
	return func() {
		copy(order[i+1:j+1], order[i:j])
		order[i] = moved
	}
}

// canonical rotates a ring so that it starts with 0, and directs it so that the
// smaller neighbour follows.
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
