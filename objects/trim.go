package objects

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// trimEvery is the interval at which unused device memory is returned to the device:
// memory that no object uses is kept for the next object for one to two intervals.
const trimEvery = 10 * time.Second

// startTrim starts the background work that returns device memory which no object uses
// any more. The delay lets a file that is removed and written again find its memory
// ready, while other programs get the memory that is no longer needed.
func (s *Store) startTrim(ctx context.Context) {
	s.work.Go(func() {
		tick := time.Tick(trimEvery)
		for {
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
			s.table.saveIdle(ctx)
			for _, t := range s.tiers {
				if err := t.Trim(); err != nil {
					s.log.Warn("could not free device memory",
						zap.String("device", string(t.Name)), zap.Error(err))
				}
			}
		}
	})
}

// saveIdle writes the records that could not be written when the last handle was
// closed, since the objects may never be opened again.
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
