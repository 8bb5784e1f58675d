package collective

import "context"

// Suspend makes every later call fail with ErrSuspended, until Resume. It is a collective
// call: all ranks make it, at the same position in the order of their calls, and it returns
// when all have. Rejected calls are not counted.
func (g *Group) Suspend(ctx context.Context) error {
	return g.agree(ctx, forSuspend, true)
}

// Resume ends Suspend, once all ranks have called it. It is a collective call, too.
func (g *Group) Resume(ctx context.Context) error {
	return g.agree(ctx, forResume, false)
}

// agree suspends the group, or not, when all ranks have made the same call.
func (g *Group) agree(ctx context.Context, why purpose, suspended bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return ErrClosed
	}
	err := g.convene(ctx, why, []byte{1}, rows(g.Size(), 1))
	if err == nil {
		g.suspended = suspended
	}
	return err
}
