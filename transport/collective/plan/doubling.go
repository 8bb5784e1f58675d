package plan

import "math/bits"

// doubling exchanges everything with a partner whose distance doubles each round. Values
// alternate between two places, so that none is overwritten while it is being sent; the
// first place is chosen so that the last round ends in the result. Ranks beyond the largest
// power of two first send their source to a partner, and get the result from it.
func (b *builder) doubling() {
	c, whole := b.all, b.whole()
	count := bits.Len(uint(b.n)) - 1
	full := 1 << count
	if c.me >= full {
		b.send(c.at(c.me-full), b.source(whole))
		b.receive(c.at(c.me-full), b.result(whole))
		return
	}
	places := [2]Block{b.result(whole), b.take(whole.Len)}
	own := b.source(whole)
	// left is the number of rounds after the present one.
	left := count
	if c.me+full < b.n {
		k := places[left%2]
		if own == places[0] {
			k = own
		}
		b.combine(c.at(c.me+full), k, own)
		own = k
	}
	for half := 1; half < full; half *= 2 {
		left--
		peer := c.at(c.me ^ half)
		b.send(peer, own)
		if k := places[left%2]; k != own {
			b.combine(peer, k, own)
			own = k
			continue
		}
		// In place, with an odd number of rounds, the first value stays where it is.
		b.receive(peer, places[1])
		b.combineFrom(own, places[1])
	}
	if b.n == 1 {
		b.copyFrom(places[0], own)
	}
	b.average(own)
	if c.me+full < b.n {
		b.send(c.at(c.me+full), own)
	}
}
