package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
	for at := 0; at < len(keys); at += metadata.UnlinkBatch {
		end := min(at+metadata.UnlinkBatch, len(keys))
		if err := cmp.Or(h.begin(), ctx.Err()); err != nil {
			for i := range out[at:end] {
				out[at+i] = err
			}
			continue
		}
		h.drop(context.WithoutCancel(ctx), keys[at:end], out[at:end])
	}
	return out
}

// drop removes keys, and sets an error for each.
func (h *Holder) drop(ctx context.Context, keys []string, out []error) {
	s := h.store
	left := make([]int, len(keys)) // which keys, by index
	for i := range left {
		left[i] = i
	}
	found, which := make([]carrier, 0, len(keys)), make([]int, 0, len(keys))
	for len(left) > 0 {
		found, which = found[:0], which[:0]
		for _, i := range left {
			in, err := s.index.holder(ctx, keys[i])
			if errors.Is(err, metadata.ErrNotExist) {
				continue
			}
			if err == nil {
				err = h.mayDrop(ctx, in)
			}
			if out[i] = err; err == nil {
				found, which = append(found, in), append(which, i)
			}
		}
		left = left[:0]
		for n, err := range s.keyed.vacateAll(ctx, found) {
			if err == nil {
				continue
			}
			// If it was renamed or replaced meanwhile, the new state must be examined; if nothing
			// has changed, the error is that of the removal.
			in, key := &found[n], keys[which[n]]
			now, again := s.index.holder(ctx, key)
			switch {
			case again == nil && (now.Ino != in.Ino || now.Parent != in.Parent || now.Name != in.Name):
				left = append(left, which[n])
			case !errors.Is(again, metadata.ErrNotExist):
				out[which[n]] = fmt.Errorf("remove key %q: %w", key, err)
			}
		}
	}
}

// mayDrop checks whether the holder's user may remove a key; any may if its time to live is over.
//
// Errors: ErrForbidden.
func (h *Holder) mayDrop(ctx context.Context, in carrier) error {
	if h.store.index.isOver(in.Inode) {
		return nil
	}
	if err := h.store.access.mayVacate(ctx, h.who, in); err != nil {
		return fmt.Errorf("remove key %q: %w", in.Key, err)
	}
	return nil
}

// vacate frees an inode's key: by removing the inode, if that was made for the key.
func (ks *keyed) vacate(ctx context.Context, in carrier) error {
	return ks.vacateAll(ctx, []carrier{in})[0]
}

// vacateAll frees the keys of several inodes in few transactions, and returns an error for each. An inode that
// precedes is gone when its turn comes again.
func (ks *keyed) vacateAll(ctx context.Context, all []carrier) []error {
	errs := make([]error, len(all))
	over := make([]int, 0, len(all)) // the inodes to be removed, by index
	var again []int                  // those that are among them already
	seen := make(map[Ino]int, len(all))
	for i := range all {
		in := &all[i]
		made := false
		if made, errs[i] = ks.isMade(ctx, in); errs[i] == nil && (!made || in.Nlink > 1) {
			errs[i] = ks.takeKey(ctx, *in)
		}
		if !made || errs[i] != nil {
			continue
		}
		if _, twice := seen[in.Ino]; twice {
			again = append(again, i)
			continue
		}
		seen[in.Ino] = i
		over = append(over, i)
	}
	slices.SortStableFunc(over, func(a, b int) int { return cmp.Compare(all[a].Parent, all[b].Parent) })
	for len(over) > 0 {
		dir := all[over[0]].Parent
		victims := make([]victim, 0, len(over))
		for _, i := range over {
			if in := &all[i]; in.Parent == dir {
				victims = append(victims, victim{names: ks.names, name: in.Name, only: in.Ino, kind: EventRemoved, unasked: true})
			}
		}
		ks.names.unlink(ctx, dir, victims)
		for n := range victims {
			errs[over[n]] = victims[n].err
		}
		over = over[len(victims):]
	}
	for _, i := range again {
		errs[i] = cmp.Or(errs[seen[all[i].Ino]], metadata.ErrNotExist)
	}
	return errs
}

// isMade reports whether an inode was made for its key.
func (ks *keyed) isMade(ctx context.Context, in *carrier) (bool, error) {
	if in.tensor != "" {
		return false, nil
	}
	return ks.access.isKeysDir(ctx, in.Parent)
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
	one := []victim{{names: n, name: in.Name, only: in.Ino, may: may, kind: kind, unasked: true, receipts: receipts}}
	n.unlink(ctx, in.Parent, one)
	return one[0].err
}
