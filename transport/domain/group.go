package domain

import (
	"context"
	"errors"
	"slices"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// Group is operations that are begun together. It is used by one goroutine,
// and only inside the function that it was given to.
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

// Group begins all operations that fn adds, then waits for all. Receives begin
// with the rank behind ours and go up; sends begin with the rank before ours,
// behind ourselves, and go down: so the first send of each rank is the first
// receive of another. Operations with one rank keep their order.
//
// Errors: those of Send, joined.
func (c *Comm) Group(ctx context.Context, fn func(*Group)) error {
	g := &Group{}
	fn(g)
	n := len(c.ranks)
	ahead := func(m member) int { return (int(m.peer) - int(c.me) + n) % n }
	slices.SortStableFunc(g.recvs, func(a, b member) int { return ahead(a) - ahead(b) })
	// Ourselves are n ahead, not 0.
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
			errs = append(errs, r.withdraw(r.describe(ErrSelf))) //nolint:contextcheck // taking back must not end with the context
		case failed:
			// One that can't begin leaves none behind.
			errs = append(errs, r.withdraw(r.describe(ErrWithdrawn))) //nolint:contextcheck // taking back must not end with the context
		default:
			errs = append(errs, r.finish(ctx))
		}
	}
	return errors.Join(errs...)
}
