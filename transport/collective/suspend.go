package collective

import "context"

// Suspend makes every later call fail with ErrSuspended, until Resume. It is a collective
// call: all ranks make it, at the same position in the order of their calls, and it returns
// when all have. Rejected calls are not counted.
func (g *Group) Suspend(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.agreed(ctx, forSuspend); err != nil {
		return err
	}
	g.suspended = true
	return nil
}

// Resume ends Suspend, once all ranks have called it. It is a collective call, too.
func (g *Group) Resume(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.agreed(ctx, forResume); err != nil {
		return err
	}
	g.suspended = false
	return nil
}

// agreed returns when all ranks have made the same call.
//
// +checklocks:g.mu
func (g *Group) agreed(ctx context.Context, why purpose) error {
	if err := g.admit(true); err != nil {
		return err
	}
	return g.convene(ctx, why, []byte{1}, rows(g.Size(), 1))
}
