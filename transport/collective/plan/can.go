package plan

import (
	"fmt"
	"slices"
)

// can checks whether an algorithm can do a task in a shape, both of which must be valid.
func can(t *Task, s *Shape, a Algorithm) error {
	kinds, strict := ability(a)
	switch {
	case kinds == nil:
		return fmt.Errorf("%w: unknown algorithm %.40q", ErrAlgorithm, a)
	case !slices.Contains(kinds, t.Kind):
		return fmt.Errorf("%w: %s does not support %v", ErrAlgorithm, a, t.Kind)
	case !strict && t.ordered():
		return fmt.Errorf("%w: %s does not combine in the order of the ranks", ErrAlgorithm, a)
	case a == Hierarchical && !s.layered(t.Ranks):
		return fmt.Errorf("%w: %s needs several nodes, and several ranks on one of them", ErrAlgorithm, a)
	case a == Direct && !s.direct(t.Ranks):
		return fmt.Errorf("%w: %s needs memory that is mapped by all ranks", ErrAlgorithm, a)
	}
	return nil
}

// ability returns the kinds of tasks that an algorithm can do, and whether it can combine
// in the order of the ranks.
func ability(a Algorithm) (kinds []Kind, strict bool) {
	switch a {
	case Ring, NHR:
		return []Kind{AllReduce, ReduceScatter, AllGather}, false
	case Doubling:
		return []Kind{AllReduce}, false
	case Binomial:
		return []Kind{AllReduce, Broadcast, Reduce}, false
	case Chain:
		return []Kind{AllReduce, Broadcast, Reduce}, true
	case Pairwise:
		return []Kind{AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, AllToAll}, false
	case Ordered:
		return []Kind{AllReduce, ReduceScatter, Reduce}, true
	case Hierarchical:
		return []Kind{AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Barrier}, false
	case Dissemination:
		return []Kind{Barrier}, false
	case Direct:
		return []Kind{AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, AllToAll, Barrier}, true
	}
	return nil, false
}
