package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// lose records that the content is lost, unless a replica takes over.
func (bs *bindings) lose(ctx context.Context, ino Ino, b *content.Bound) {
	o := bs.table.pinLoaded(ino)
	if o == nil {
		return
	}
	defer bs.table.unpin(ctx, o, pinUse)
	gone := false
	err := o.exclusively(ctx, func() error {
		if o.content() != content.Content(b) || bs.takeOver(ctx, o, b) == nil {
			return nil
		}
		gone = true
		err := bs.meta.Unbind(ctx, ino, true)
		if err != nil && !errors.Is(err, metadata.ErrNotExist) {
			return err
		}
		o.mu.Lock()
		o.body = content.Lost{}
		o.mu.Unlock()
		o.version.Add(2)
		return nil
	})
	if err != nil {
		bs.log.Warn("could not write the record of a lost object", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	if !gone {
		return
	}
	bs.tellLost(ctx, ino)
	if sourceOf(b) != nil {
		bs.keyed.expireLost(ctx, ino)
	} else {
		bs.log.Info("object lost because the process that owned its memory has ended", zap.Uint64("ino", uint64(ino)))
	}
	bs.changes.tell(ino, true)
}

// tellLost emits the events that the object of a key, or of keys of tensors, is lost.
func (bs *bindings) tellLost(ctx context.Context, ino Ino) {
	in, err := bs.meta.Get(ctx, ino)
	if err != nil || in.Key == "" && in.Parts == 0 {
		return
	}
	// The lock orders this event before the one of a removal of the name.
	defer bs.names.lock(in.Parent, in.Parent)()
	now, err := bs.meta.Get(ctx, ino)
	if err == nil && now.Key != "" && now.Key == in.Key {
		bs.events.emit(EventLost, now.Key, &now)
	}
	if parts, failed := bs.meta.PartKeys(ctx, ino); err == nil && failed == nil {
		bs.events.eachTensorKey(EventLost, parts, now)
	}
}

// ownerEnded is called by the watcher. From its first line on the memory is
// inaccessible; the record follows in the background, since it waits for a change of
// the object under way.
func (bs *bindings) ownerEnded(ino Ino, b *content.Bound) {
	b.End()
	bs.work.Go(func() { bs.lose(context.Background(), ino, b) })
}

// watch makes the object lost when its owner exits.
func (bs *bindings) watch(ino Ino, b opened) error {
	if b.owner == nil {
		return nil
	}
	cancel, err := bs.owners.Watch(b.owner, func() { bs.ownerEnded(ino, b.body) })
	if err != nil {
		b.body.End()
		bs.lose(context.Background(), ino, b.body)
		return fmt.Errorf("bind object %d: %w", ino, err)
	}
	b.body.SetCancel(content.CancelFunc(cancel))
	return nil
}

// memoryEnded handles the end of memory that an object, or a replica of it, is made of.
func (bs *bindings) memoryEnded(ctx context.Context, ino Ino, b *content.Bound) {
	o := bs.table.pinLoaded(ino)
	if o == nil {
		return
	}
	err := o.exclusively(ctx, func() error {
		if now, ok := o.content().(*content.Bound); ok && now != b {
			now.DropReplicas(func(r *content.Bound) bool { return r == b })
		}
		return nil
	})
	bs.table.unpin(ctx, o, pinUse)
	if err == nil {
		bs.lose(ctx, ino, b)
	}
}
