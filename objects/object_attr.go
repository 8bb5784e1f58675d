package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// resize truncates or extends the object. The caller has the lane.
func (o *object) resize(ctx context.Context, size uint64) error {
	if size > maxSize {
		return fmt.Errorf("resize object %d to %d bytes: %w", o.ino, size, ErrTooLarge)
	}
	if err := o.notOffered(); err != nil {
		return err
	}
	if err := o.mayCut(size); err != nil {
		return err
	}
	if size == 0 {
		if err := o.forgetBinding(ctx); err != nil {
			return err
		}
		o.revive()
	}
	_, body := o.place()
	was := o.shrink(size)
	err := body.Cut(ctx, size)
	now := o.table.meta.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.size = was
		o.keepLocked()
		return err
	}
	if o.body.Backing() == nil {
		o.size, o.mtime, o.ctime = size, now, now
		o.keepLocked()
		o.dirty.Store(true)
	}
	return nil
}

// revive makes a lost object live again in the present epoch. It is called when the
// object is truncated to 0, so that its bytes are no longer needed.
func (o *object) revive() {
	t, body := o.place()
	x, inDevice := body.(*content.Extents)
	_, gone := body.(content.Lost)
	if !gone && (!inDevice || x.CheckEpoch() == nil) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// A reader that has read the size of the lost content must not find the new content's
	// holes below it: see look.
	o.cuts.Add(1)
	if t.Files == nil {
		o.body = o.table.emptyContent(t)
		o.size, o.epoch = 0, 0
		o.keepLocked()
		o.dirty.Store(true)
		return
	}
	h, err := content.CreateHostFile(t, o.table.engine, uint64(o.ino))
	if err == nil {
		o.body, o.epoch = h, t.Epoch()
		o.revived.Store(true)
		o.dirty.Store(true)
	}
}

// forgetBinding makes an object whose owner has exited an ordinary one, when it is
// truncated to 0. The caller has the lane.
func (o *object) forgetBinding(ctx context.Context) error {
	if _, gone := o.content().(content.Lost); !gone {
		return nil
	}
	err := o.table.meta.Unbind(context.WithoutCancel(ctx), o.ino, false)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		return fmt.Errorf("unbind object %d: %w", o.ino, err)
	}
	o.foreign.Store(false)
	return nil
}

// setAttr changes the size and times, which the object holds, and then the record by
// commit.
func (o *object) setAttr(ctx context.Context, c Change, commit func() error) error {
	if err := o.lane.Enter(ctx); err != nil {
		return err
	}
	defer o.lane.Leave()
	defer o.table.notices.send(Notice{Ino: o.ino})
	if c.Size != nil {
		o.version.Add(1)
		defer o.version.Add(1)
		if err := o.resize(ctx, *c.Size); err != nil {
			return err
		}
	}
	if err := o.setTimes(c); err != nil {
		return err
	}
	return commit()
}

func (o *object) setTimes(c Change) error {
	if c.Atime == nil && c.Mtime == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if h, ok := o.body.(*content.HostFile); ok {
		return h.SetTimes(c.Atime, c.Mtime)
	}
	assign(&o.atime, c.Atime)
	assign(&o.mtime, c.Mtime)
	o.keepLocked()
	o.dirty.Store(true)
	return nil
}
