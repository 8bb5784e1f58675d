package collective

import (
	"slices"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// lendSize is from how many bytes for each rank on memory is lent to the links
// instead of being copied. Fewer are in a cache, from where a copy takes no longer
// than to look up their pages.
const lendSize = 2 << 20

// lends says whether ranks may lend what they send by a plan: the same at all of
// them, since a call that lends ends when all ranks have what they were to get. A
// caller may change what was sent then, and who gives up has to say so.
func (g *Group) lends(p *plan.Plan) bool {
	t := &p.Task
	return !g.direct() && t.Count*t.Type.Size()/uint64(t.Ranks) >= lendSize &&
		slices.Contains([]plan.Algorithm{plan.Ring, plan.NHR, plan.Chain, plan.Pairwise}, p.Algorithm)
}
