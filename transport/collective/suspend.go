package collective

import "context"

// Suspend has every call that begins fail with ErrSuspended, after the one that
// is under way; Resume ends that. It is a call like others: all ranks make it,
// at the same place in the order of their calls, and it returns when all have.
func (g *Group) Suspend(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guard.suspended {
		return nil
	}
	if err := g.agreed(ctx, forSuspend); err != nil {
		return err
	}
	g.guard.suspended = true
	return nil
}

// Resume ends Suspend, once all ranks have called it.
func (g *Group) Resume(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.guard.suspended {
		return nil
	}
	if err := g.agreed(ctx, forResume); err != nil {
		return err
	}
	g.guard.suspended = false
	return nil
}

// agreed returns when all ranks have come for the same.
//
// +checklocks:g.mu
func (g *Group) agreed(ctx context.Context, why purpose) error {
	return g.convene(ctx, why, []byte{1}, g.rows(1))
}
