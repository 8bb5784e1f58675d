package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// Drop removes keys, with all replicas. An object in its device's directory of keyed
// objects is removed; any other file only loses the key. A key that does not exist is a
// success.
//
// Errors by key: ErrForbidden for an object that the holder's user may not write;
// ErrBusy while the object is exported in a way that its removal would break.
func (h *Holder) Drop(ctx context.Context, keys []string) []error {
	out := make([]error, len(keys))
	for i, key := range keys {
		if out[i] = cmp.Or(h.begin(), ctx.Err()); out[i] == nil {
			out[i] = h.drop(context.WithoutCancel(ctx), key)
		}
	}
	return out
}

func (h *Holder) drop(ctx context.Context, key string) error {
	s := h.store
	for {
		in, err := s.index.holder(ctx, key)
		switch {
		case errors.Is(err, metadata.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !s.index.isOver(in.Inode):
			if err = s.access.mayVacate(ctx, h.who, in); err != nil {
				return fmt.Errorf("remove key %q: %w", key, err)
			}
		}
		if err = s.keyed.vacate(ctx, in); err == nil {
			return nil
		}
		// If it was renamed or replaced meanwhile, the new state must be examined; if nothing
		// has changed, the error is that of the removal.
		if now, again := s.index.holder(ctx, key); again != nil || now.Ino == in.Ino && now.Parent == in.Parent && now.Name == in.Name {
			if errors.Is(again, metadata.ErrNotExist) {
				return nil
			}
			return fmt.Errorf("remove key %q: %w", key, err)
		}
	}
}

// vacate frees an inode's key: by removing the inode, if that was made for the key.
func (ks *keyed) vacate(ctx context.Context, in carrier) error {
	if in.tensor != "" {
		return ks.takeKey(ctx, in)
	}
	made, err := ks.access.isKeysDir(ctx, in.Parent)
	if err != nil {
		return err
	}
	if !made || in.Nlink > 1 {
		if err := ks.takeKey(ctx, in); err != nil {
			return err
		}
	}
	if !made {
		return nil
	}
	return ks.names.unlinkSame(ctx, in.Inode, EventRemoved, nil)
}

// claimAndGive is giveKey for a key that another node may have.
func (ks *keyed) claimAndGive(ctx context.Context, in carrier, key string) error {
	done, err := ks.claims.claimOne(ctx, SpaceKeys, key)
	if err != nil {
		return err
	}
	defer done()
	return ks.giveKey(context.WithoutCancel(ctx), in, key)
}

// giveKey gives an inode, or a tensor, a key, in place of the one that it carries. If a vacant inode, see
// isVacant, has the key, that inode loses it.
func (ks *keyed) giveKey(ctx context.Context, in carrier, key string) error {
	for races := 0; ; races++ {
		err := ks.bindKey(ctx, in, key)
		if !errors.Is(err, metadata.ErrExist) || races == 8 {
			return err
		}
		holder, again := ks.index.holder(ctx, key)
		if again == nil && !ks.index.isVacant(holder.Inode) {
			return err
		}
		if again == nil {
			again = ks.vacate(ctx, holder)
		}
		if again != nil && !errors.Is(again, metadata.ErrNotExist) {
			return errors.Join(err, again)
		}
	}
}

func (ks *keyed) bindKey(ctx context.Context, in carrier, key string) error {
	ks.turn.RLock()
	defer ks.turn.RUnlock()
	if in.tensor != "" {
		return ks.bindTensor(ctx, in, key)
	}
	if err := ks.meta.BindKey(ctx, in.Ino, key); err != nil || key == in.Key {
		return err
	}
	if in.Key != "" {
		ks.events.emit(EventRemoved, in.Key, &in.Inode)
	}
	in.Key = key
	ks.keyCame(&in.Inode)
	return nil
}

// tell emits the event for the key of an inode that was removed, and ends the offer of
// one that was published.
func (v *victim) tell(after metadata.Inode) {
	after.Size = v.size
	switch {
	case after.Parent == metadata.PublishIno && after.IsRegular():
		v.names.events.emit(v.endOffer(after.Ino), after.Name, &after)
	case after.Key != "" && v.kind == "":
		v.names.events.emit(EventRemoved, after.Key, &after)
	case after.Key != "":
		v.names.events.emit(v.kind, after.Key, &after)
	}
	v.names.events.eachTensorKey(cmp.Or(v.kind, EventRemoved), v.parts, after)
}

// takeKey removes the key of an inode, or of a tensor, if it has not changed.
func (ks *keyed) takeKey(ctx context.Context, in carrier) error {
	ks.turn.Lock()
	defer ks.turn.Unlock()
	now, err := ks.index.holder(ctx, in.Key)
	if err == nil && (now.Ino != in.Ino || now.tensor != in.tensor) {
		err = metadata.ErrNotExist
	}
	switch {
	case err != nil:
	case in.tensor != "":
		now.Size = 0 // that of the tensor is not known
		err = ks.bindTensor(ctx, now, "")
	default:
		if err = ks.meta.BindKey(ctx, in.Ino, ""); err == nil {
			ks.events.emit(EventRemoved, in.Key, &now.Inode)
		}
	}
	if err != nil {
		return fmt.Errorf("remove key %q from inode %d: %w", in.Key, in.Ino, err)
	}
	return nil
}

// removeUnkeyed removes an object that has lost its key to another one, if it was made
// for that key.
func (ks *keyed) removeUnkeyed(ctx context.Context, ino Ino) {
	made := false
	in, err := ks.meta.Get(ctx, ino)
	if err == nil && in.Key == "" {
		made, err = ks.access.isKeysDir(ctx, in.Parent)
	}
	if made && err == nil {
		err = ks.names.unlinkSame(ctx, in, EventRemoved, nil)
	}
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		ks.log.Warn("could not remove an object that lost its key", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
}

// unlinkSame removes a name of an inode, as Unlink does, if the name still refers to
// that inode, and may, unless it is nil, returns no error. may is called under the lock
// of the names, so that the name cannot be removed meanwhile.
//
// Errors: metadata.ErrNotExist if the name no longer refers to the inode.
func (n *names) unlinkSame(ctx context.Context, in metadata.Inode, kind EventKind, may func(now metadata.Inode) error) error {
	return n.unlinkNoting(ctx, in, kind, nil, may)
}

// unlinkNoting is unlinkSame, and notes receipts.
func (n *names) unlinkNoting(
	ctx context.Context, in metadata.Inode, kind EventKind, receipts []string, may func(now metadata.Inode) error,
) error {
	v := &victim{names: n, kind: kind, unasked: true, receipts: receipts}
	return n.unlink(ctx, in.Parent, in.Name, v, func() error {
		now, err := n.meta.Lookup(ctx, in.Parent, in.Name)
		if err == nil && now.Ino != in.Ino {
			err = metadata.ErrNotExist
		}
		if err == nil && may != nil {
			err = may(now)
		}
		return err
	})
}
