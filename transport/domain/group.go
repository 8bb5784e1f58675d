package domain

import (
	"context"
	"errors"
	"slices"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// Group collects operations that start together. It is used by one goroutine, and only
// inside the function that receives it.
type Group struct{ sends, recvs []member }

// member is one operation of a group.
type member struct {
	view View
	peer Rank
	tag  wire.Tag
}

// Send adds a send.
func (g *Group) Send(v View, to Rank, tag wire.Tag) {
	g.sends = append(g.sends, member{v, to, tag})
}

// Recv adds a receive.
func (g *Group) Recv(v View, from Rank, tag wire.Tag) {
	g.recvs = append(g.recvs, member{v, from, tag})
}

// Group starts all operations that fn adds, then waits for all of them. Receives start with
// the next rank after ours, in ascending order; sends start with the rank before ours,
// after those to ourselves, in descending order: so the first send of each rank matches the
// first receive of another. Operations with one rank keep their order.
//
// Errors: those of Send, joined.
func (c *Comm) Group(ctx context.Context, fn func(*Group)) error {
	g := &Group{}
	fn(g)
	n := len(c.ranks)
	ahead := func(m member) int { return (int(m.peer) - int(c.me) + n) % n }
	slices.SortStableFunc(g.recvs, func(a, b member) int { return ahead(a) - ahead(b) })
	// Our own rank counts as n ahead, not 0.
	behind := func(m member) int { return (ahead(m) + n - 1) % n }
	slices.SortStableFunc(g.sends, func(a, b member) int { return behind(b) - behind(a) })
	var all []*Request
	var errs []error
	begin := func(k kind, members []member) {
		for _, m := range members {
			if errs != nil {
				return
			}
			r, err := c.async(ctx, k, m.peer, m.tag, []View{m.view})
			if err != nil {
				errs = append(errs, err)
				return
			}
			all = append(all, r)
		}
	}
	begin(kindRecv, g.recvs)
	begin(kindSend, g.sends)
	failed := errs != nil
	for _, r := range all {
		switch done, err := r.Test(); {
		case done:
			errs = append(errs, err)
		case r.pair.self && r.pair.unmet(r):
			errs = append(errs, r.withdraw(r.describe(ErrSelf))) //nolint:contextcheck // a withdrawal must not end with the context
		case failed:
			// If one can't start, none is left behind.
			errs = append(errs, r.withdraw(r.describe(ErrWithdrawn))) //nolint:contextcheck // a withdrawal must not end with the context
		default:
			errs = append(errs, r.Finish(ctx))
		}
	}
	return errors.Join(errs...)
}
