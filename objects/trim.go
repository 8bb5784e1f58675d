package objects

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// startTrim gives device memory back, in the background, that objects have
// left and no other has taken: a file removed and written again finds its
// memory ready, and other programs get what is not needed any more.
func (s *Store) startTrim(ctx context.Context, every time.Duration) {
	s.work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			s.table.saveIdle(ctx)
			for _, t := range s.tiers {
				if err := t.Trim(); err != nil {
					s.log.Warn("device memory could not be given back",
						zap.String("device", string(t.Name)), zap.Error(err))
				}
			}
		}
	})
}

// saveIdle writes the records that could not be written when the last handle
// was closed: nobody may ever open those objects again.
func (tb *table) saveIdle(ctx context.Context) {
	late := tb.loaded(func(e *entry) bool {
		if e.pins > 0 || e.orphan != nil || !e.obj.dirty.Load() {
			return false
		}
		e.pins++
		return true
	})
	for _, o := range late {
		tb.unpin(ctx, o, pinUse)
	}
}
