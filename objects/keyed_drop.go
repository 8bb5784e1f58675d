package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// Drop removes keys, with all replicas. An object in its device's directory of
// keyed objects goes; of any other file only the key is taken. A key that is
// not there is a success.
//
// Errors by key: ErrForbidden for what the holder's user may not write; ErrBusy
// while the object is exported in a way that its removal would break.
func (h *Holder) Drop(ctx context.Context, keys []string) []error {
	out := make([]error, len(keys))
	for i, key := range keys {
		if out[i] = h.begin(); out[i] != nil {
			continue
		}
		if out[i] = ctx.Err(); out[i] == nil {
			out[i] = h.drop(context.WithoutCancel(ctx), key)
		}
	}
	return out
}

func (h *Holder) drop(ctx context.Context, key string) error {
	s := h.store
	for {
		in, err := s.keyHolder(ctx, key)
		switch {
		case errors.Is(err, metadata.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !s.isOver(in):
			if err = s.mayVacate(ctx, h.who, in); err != nil {
				return fmt.Errorf("remove key %q: %w", key, err)
			}
		}
		if err = s.vacate(ctx, in); err == nil {
			return nil
		}
		// Who has renamed or replaced it meanwhile leaves something to be judged
		// anew; with everything as it was the error is the removal's own.
		if now, again := s.keyHolder(ctx, key); again != nil || now.Ino == in.Ino && now.Parent == in.Parent && now.Name == in.Name {
			if errors.Is(again, metadata.ErrNotExist) {
				return nil
			}
			return fmt.Errorf("remove key %q: %w", key, err)
		}
	}
}

// vacate makes an inode's key free: by its removal where it was made for the
// key.
func (s *Store) vacate(ctx context.Context, in metadata.Inode) error {
	made, err := s.isKeysDir(ctx, in.Parent)
	if err != nil {
		return err
	}
	if !made || in.Nlink > 1 {
		if err := s.takeKey(ctx, in); err != nil {
			return err
		}
	}
	if !made {
		return nil
	}
	return s.unlinkSame(ctx, in, EventRemoved, nil)
}

// claimAndGive is giveKey for a key that another machine may have.
func (s *Store) claimAndGive(ctx context.Context, in metadata.Inode, key string) error {
	done, err := s.claimOne(ctx, SpaceKeys, key)
	if err != nil {
		return err
	}
	defer done()
	return s.giveKey(context.WithoutCancel(ctx), in, key)
}

// giveKey gives an inode a key, in place of the one that it carries. One that
// has nothing to show for the key loses it.
func (s *Store) giveKey(ctx context.Context, in metadata.Inode, key string) error {
	for races := 0; ; races++ {
		err := s.bindKey(ctx, in, key)
		if !errors.Is(err, metadata.ErrExist) || races == 8 {
			return err
		}
		holder, again := s.keyHolder(ctx, key)
		if again == nil && !s.isVacant(holder) {
			return err
		}
		if again == nil {
			again = s.vacate(ctx, holder)
		}
		if again != nil && !errors.Is(again, metadata.ErrNotExist) {
			return errors.Join(err, again)
		}
	}
}

func (s *Store) bindKey(ctx context.Context, in metadata.Inode, key string) error {
	s.keyed.turn.RLock()
	defer s.keyed.turn.RUnlock()
	if err := s.meta.BindKey(ctx, in.Ino, key); err != nil || key == in.Key {
		return err
	}
	if in.Key != "" {
		s.emit(EventRemoved, in.Key, in)
	}
	in.Key = key
	s.keyCame(in)
	return nil
}

// tell says what has become of the key of an inode that is gone, and ends the
// offer of one that was published.
func (v *victim) tell(after metadata.Inode) {
	after.Size = v.size
	switch {
	case after.Parent == metadata.PublishIno && after.IsRegular():
		v.store.emit(v.endOffer(after.Ino), after.Name, after)
	case after.Key != "" && v.kind == "":
		v.store.emit(EventRemoved, after.Key, after)
	case after.Key != "":
		v.store.emit(v.kind, after.Key, after)
	}
}

// takeKey takes an inode's key away, if it is still the one that it was.
func (s *Store) takeKey(ctx context.Context, in metadata.Inode) error {
	s.keyed.turn.Lock()
	defer s.keyed.turn.Unlock()
	now, err := s.meta.Get(ctx, in.Ino)
	if err == nil && now.Key != in.Key {
		err = metadata.ErrNotExist
	}
	if err == nil {
		err = s.meta.BindKey(ctx, in.Ino, "")
	}
	if err != nil {
		return fmt.Errorf("take key %q from inode %d: %w", in.Key, in.Ino, err)
	}
	s.emit(EventRemoved, in.Key, now)
	return nil
}

// removeUnkeyed removes an object that another one has taken the key from, if
// it was made for that key.
func (s *Store) removeUnkeyed(ctx context.Context, ino Ino) {
	made := false
	in, err := s.meta.Get(ctx, ino)
	if err == nil && in.Key == "" {
		made, err = s.isKeysDir(ctx, in.Parent)
	}
	if made && err == nil {
		err = s.unlinkSame(ctx, in, EventRemoved, nil)
	}
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		s.log.Warn("an object that lost its key could not be removed", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
}

// unlinkSame removes a name of an inode, as Unlink does, if it is that inode's
// still, and may has nothing against it: it is asked when nobody else can
// remove the name.
//
// Errors: metadata.ErrNotExist when the name is not the inode's any more.
func (s *Store) unlinkSame(ctx context.Context, in metadata.Inode, kind EventKind, may func(now metadata.Inode) error) error {
	unlock := s.names.lock(in.Parent, in.Parent)
	v, err := s.victim(ctx, in.Parent, in.Name)
	v.kind, v.unasked = kind, true
	var now metadata.Inode
	if err == nil {
		now, err = s.meta.Lookup(ctx, in.Parent, in.Name)
	}
	if err == nil && now.Ino != in.Ino {
		err = metadata.ErrNotExist
	}
	if err == nil && may != nil {
		err = may(now)
	}
	if err == nil {
		if now, err = s.meta.Unlink(ctx, in.Parent, in.Name); err == nil {
			v.removed(now)
		}
	}
	unlock()
	v.release(ctx)
	if err != nil {
		return fmt.Errorf("remove %q: %w", in.Name, err)
	}
	return nil
}
