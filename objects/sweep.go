package objects

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// startSweep removes, in the background, the host-tier files of objects that
// were removed, or were moving to or from another device, when the daemon
// before this one died: their record went first, or names the other device.
func (s *Store) startSweep(ctx context.Context) {
	limit := s.meta.NextIno()
	for _, t := range s.tiers {
		if t.files == nil {
			continue
		}
		s.work.Go(func() {
			removed, err := s.sweep(ctx, t, limit)
			if err != nil && !errors.Is(err, context.Canceled) {
				s.log.Warn("host memory of removed objects not given back", zap.Error(err))
			}
			if removed > 0 {
				s.log.Info("host memory of removed objects given back", zap.Int("objects", removed))
			}
		})
	}
}

// sweep looks only at numbers below limit: those at and above are given to
// objects that are made meanwhile.
func (s *Store) sweep(ctx context.Context, t *tier, limit Ino) (int, error) {
	removed := 0
	err := t.files.Each(func(id uint64) error {
		if err := ctx.Err(); err != nil || Ino(id) >= limit {
			return err
		}
		in, err := s.meta.Get(ctx, Ino(id))
		switch {
		case err == nil && in.Device == t.name:
			return nil
		case err == nil:
			var gone bool
			if gone, err = s.sweepMoved(ctx, t, Ino(id)); gone {
				removed++
			}
			return err
		case !errors.Is(err, metadata.ErrNotExist):
			return err
		}
		removed++
		return removeHost(t, s.engine, id)
	})
	return removed, err
}

// sweepMoved removes a host-tier file of an object that lives on another
// device. A move to this tier, which would use the file, waits, or is over
// and the file stays.
func (s *Store) sweepMoved(ctx context.Context, t *tier, ino Ino) (gone bool, err error) {
	o, err := s.pin(ctx, ino, pinUse)
	if errors.Is(err, metadata.ErrNotExist) {
		return true, removeHost(t, s.engine, uint64(ino))
	}
	if err != nil {
		return false, err
	}
	defer s.unpin(ctx, o, pinUse)
	if err = o.lane.enter(ctx); err != nil {
		return false, err
	}
	defer o.lane.leave()
	if now, _ := o.place(); now == t {
		return false, nil
	}
	return true, removeHost(t, s.engine, uint64(ino))
}

// loseHost marks the objects of a host tier whose files are gone, as after a
// reboot: they were in epoch before. Their records name no epoch while the
// files are there.
func (s *Store) loseHost(ctx context.Context, t *tier, before metadata.Epoch) error {
	var gone []Ino
	err := s.meta.Walk(ctx, func(in metadata.Inode) error {
		if in.Device == t.name && in.IsRegular() && in.Epoch == 0 && in.Bound == metadata.Unbound {
			gone = append(gone, in.Ino)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, ino := range gone {
		_, err := s.meta.Update(ctx, ino, func(in *metadata.Inode) error {
			in.Epoch = before
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.log.Warn("host memory of an earlier run is gone", zap.Int("objects", len(gone)))
	return nil
}
