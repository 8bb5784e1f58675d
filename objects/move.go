package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// moveBetween renames between two devices: the content is copied first, then
// one transaction moves the name and the records, then the old content goes.
// A death in between leaves the object whole under its old name.
func (s *Store) moveBetween(ctx context.Context, r metadata.Rename) error {
	in, err := s.meta.Lookup(ctx, r.From, r.Name)
	if err != nil {
		return err
	}
	dir, err := s.meta.Get(ctx, r.To)
	if err != nil {
		return err
	}
	if in.IsDir() || in.Nlink > 1 {
		return metadata.ErrCrossDevice
	}
	to, err := s.tierOf(dir.Device)
	if err != nil {
		return err
	}
	if !in.IsRegular() {
		return s.replace(ctx, r, func() (metadata.RenameResult, error) {
			return s.moveName(ctx, r, in.Ino, to, 0, nil)
		})
	}
	end, ok := s.beginMove(in.Ino)
	if !ok {
		return fmt.Errorf("the file is open: %w", metadata.ErrCrossDevice)
	}
	defer end()
	return s.moveObject(ctx, r, in.Ino, to)
}

// moveName is metadata.MoveDevice for a name that must still be what was
// copied. The caller has the names' locks.
func (s *Store) moveName(ctx context.Context, r metadata.Rename, ino Ino, to *tier, epoch metadata.Epoch, maps []metadata.Mapping) (metadata.RenameResult, error) {
	now, err := s.meta.Lookup(ctx, r.From, r.Name)
	if err != nil {
		return metadata.RenameResult{}, err
	}
	if now.Ino != ino {
		return metadata.RenameResult{}, fmt.Errorf("%q was replaced meanwhile: %w", r.Name, metadata.ErrNotExist)
	}
	return s.meta.MoveDevice(ctx, r, to.name, epoch, maps)
}

func (s *Store) moveObject(ctx context.Context, r metadata.Rename, ino Ino, to *tier) error {
	o, err := s.pin(ctx, ino, pinUse)
	if err != nil {
		return err
	}
	defer s.unpin(ctx, o, pinUse)
	fresh, epoch, err := s.newContent(to, ino)
	if err != nil {
		return err
	}
	var old content
	err = o.change(ctx, func() error {
		if err := o.duplicate(ctx, fresh); err != nil {
			return err
		}
		size, err := o.end()
		if err != nil {
			return err
		}
		if fresh.usage() == 0 && fresh.backing() == nil {
			epoch = 0
		}
		err = s.replace(ctx, r, func() (metadata.RenameResult, error) {
			return s.moveName(ctx, r, ino, to, epoch, fresh.settle(size))
		})
		if err != nil {
			return err
		}
		old, err = o.rehome(to, fresh, epoch)
		return err
	})
	if err != nil && old == nil {
		return errors.Join(err, fresh.discard())
	}
	if err := errors.Join(err, old.discard()); err != nil {
		s.log.Warn("memory of a moved object not given back", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	return nil
}

// newContent makes empty content on a tier for an object that lives on
// another.
func (s *Store) newContent(to *tier, ino Ino) (content, metadata.Epoch, error) {
	if to.files == nil {
		return s.emptyContent(to), to.epoch(), nil
	}
	h, err := openHostFile(to, s.engine, uint64(ino))
	return h, to.epoch(), err
}

// rehome gives the object its new content and returns the old one. Times and
// size stay as they were: a rename changes neither.
func (o *object) rehome(to *tier, fresh content, epoch metadata.Epoch) (content, error) {
	in := metadata.Inode{}
	if err := o.overlay(&in); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.body
	o.tier, o.body, o.epoch = to, fresh, epoch
	o.size, o.atime, o.mtime = in.Size, in.Atime, in.Mtime
	o.dirty.Store(true)
	h, ok := fresh.(*hostFile)
	if !ok {
		return old, nil
	}
	return old, h.setTimes(Change{Atime: &in.Atime, Mtime: &in.Mtime})
}
