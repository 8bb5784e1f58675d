package plan

import (
	"fmt"
	"slices"
)

// check checks whether the shape is valid for n ranks.
func (s *Shape) check(n int) error {
	if s.Nodes != nil && len(s.Nodes) != n {
		return fmt.Errorf("%w: the shape has nodes for %d ranks, but the task has %d", ErrTask, len(s.Nodes), n)
	}
	if s.Order != nil && !slices.Equal(slices.Sorted(slices.Values(s.Order)), inOrder(n)) {
		return fmt.Errorf("%w: the order %v is not a permutation of %d ranks", ErrTask, s.Order, n)
	}
	return nil
}

func (s *Shape) clone() Shape {
	c := *s
	c.Order, c.Nodes = slices.Clone(s.Order), slices.Clone(s.Nodes)
	return c
}

// order returns the ranks as a ring. If Order is nil, the ranks of a node are adjacent.
func (s *Shape) order(n int) []Rank {
	if s.Order != nil {
		return s.Order
	}
	all := inOrder(n)
	if s.Nodes != nil {
		first := func(r Rank) int { return slices.Index(s.Nodes, s.Nodes[r]) }
		slices.SortStableFunc(all, func(a, b Rank) int { return first(a) - first(b) })
	}
	return all
}

// inOrder returns n ranks in ascending order.
func inOrder(n int) []Rank {
	all := make([]Rank, n)
	for i := range all {
		all[i] = Rank(i)
	}
	return all
}

// nodes returns the ranks of each node in the order of the ring, with the nodes in the
// order of their first rank there.
func (s *Shape) nodes(n int) [][]Rank {
	order := s.order(n)
	if s.Nodes == nil {
		return [][]Rank{order}
	}
	var all [][]Rank
	for _, r := range order {
		i := slices.IndexFunc(all, func(mates []Rank) bool { return s.Nodes[mates[0]] == s.Nodes[r] })
		if i < 0 {
			i, all = len(all), append(all, nil)
		}
		all[i] = append(all[i], r)
	}
	return all
}

// direct reports whether all n ranks have each other's memory mapped.
func (s *Shape) direct(n int) bool { return s.Mapped && len(s.nodes(n)) == 1 }

// layered reports whether there are several nodes, and several ranks on one of them.
func (s *Shape) layered(n int) bool {
	nodes := s.nodes(n)
	return len(nodes) > 1 && len(nodes) < n
}
