package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/objects/tensors"
	"github.com/hmcfs/hmcfs/transport"
)

// BindRequest describes memory of another process that is to become the content of a
// file.
type BindRequest struct {
	// Memory describes the memory.
	Memory share.Memory
	// Handles are the open handles of the pieces, in their order. Bind takes ownership of
	// the descriptors, also when it fails. If it is nil, Bind opens the memory that Memory
	// names.
	Handles []devices.Handle
}

// bindings makes memory of other processes and of holders the content of objects, and
// handles the end of that memory.
type bindings struct {
	meta   *metadata.Store
	engine *transport.Engine
	log    *zap.Logger
	// owners reports the exit of processes that own memory.
	owners *owner.Watcher
	guard  *owner.Guard
	// work counts the background work.
	work    *sync.WaitGroup
	tiers   tiers
	maps    transport.Mappings // of memory that holders have registered
	table   *table
	attrs   *attributes
	access  *access
	events  *events
	names   *names
	changes *changes
	keyed   *keyed
	// absences are objects whose owners may come back.
	absences *absences
	// refusedBlobs counts the requests refused because the holder had too many blobs.
	refusedBlobs atomic.Uint64
}

// Bind makes memory that another process owns the content of the file ino, which must
// be a regular file without content that is not open. From then on the file is that
// memory: nothing is copied, and unlinking only unbinds. When the owner exits, the
// object is lost.
//
// Errors: ErrForbidden if the caller may not write the file, or the memory is not the
// caller's; ErrBusy if the file has content or is open; devices.ErrHandle for a
// description that names no memory of the file's device; ErrInvalid for dtype, shape
// and blobs that don't fit.
func (s *Store) Bind(ctx context.Context, ino Ino, who Caller, r BindRequest) error {
	b, record, err := s.bindings.openMemory(ctx, who, r, func(op *opener) error { return op.checkFile(ctx, ino) })
	if err != nil {
		return fmt.Errorf("bind object %d: %w", ino, err)
	}
	if err = s.bindings.attach(ctx, ino, b, record); err != nil {
		return errors.Join(fmt.Errorf("bind object %d: %w", ino, err), b.release())
	}
	if err = s.bindings.describe(ctx, ino, record.Memory); err != nil {
		s.log.Warn("could not record the description of bound memory", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	err = s.bindings.watch(ino, b) //nolint:contextcheck // the watch lasts until the owner ends
	s.changes.tell(ino, false)
	return err
}

// attach makes memory of another process the content of an object that has none.
func (bs *bindings) attach(ctx context.Context, ino Ino, of opened, record binding) error {
	b := of.body
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	end, ok := bs.table.awaitMove(ctx, ino)
	if !ok {
		return fmt.Errorf("the file is open; close it first: %w", ErrBusy)
	}
	defer end()
	o, err := bs.table.pin(ctx, ino, pinUse)
	if err != nil {
		return err
	}
	defer bs.table.unpin(context.WithoutCancel(ctx), o, pinUse)
	var old content.Content
	err = o.change(ctx, func() (err error) {
		if err = o.mayBind(of.tier); err != nil {
			return err
		}
		now := bs.meta.Now()
		_, err = bs.meta.Bind(context.WithoutCancel(ctx), ino, data, func(in *metadata.Inode) error {
			in.Size, in.Allocated, in.Epoch, in.Path = b.Length(), b.Length(), 0, ""
			in.Atime, in.Mtime, in.Ctime = now, now, now
			return nil
		})
		if err != nil {
			return err
		}
		old = o.become(b, facts{size: b.Length(), atime: now, mtime: now, ctime: now})
		return nil
	})
	if err != nil {
		return err
	}
	if err := old.Discard(); err != nil {
		bs.log.Warn("could not free the former memory of an object that was bound", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	return nil
}

func (o *object) become(b *content.Bound, f facts) content.Content {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.body
	o.body, o.facts = b, f
	o.foreign.Store(true)
	return old
}

// mayBind fails unless the object has no content, and is on the device that the memory
// belongs to. The caller has the lane.
func (o *object) mayBind(of *content.Tier) error {
	if err := o.notOffered(); err != nil {
		return err
	}
	t, body := o.place()
	if t != of {
		return fmt.Errorf("the file has moved from %s to %s in the meantime: %w", of.Name, t.Name, ErrBusy)
	}
	switch body.(type) {
	case *content.Bound:
		return fmt.Errorf("the file is already bound; remove it to unbind: %w", ErrBusy)
	case content.Lost:
		return fmt.Errorf("the file's content is lost; truncate it to 0 first: %w", ErrBusy)
	}
	size, err := o.end()
	if err != nil {
		return err
	}
	if size > 0 || body.Usage() > 0 || o.exported() > 0 {
		return fmt.Errorf("the file is not empty (%d bytes); bind an empty file: %w", size, ErrBusy)
	}
	return nil
}

// describe sets the attributes that describe the bytes; they have been validated
// before.
func (bs *bindings) describe(ctx context.Context, ino Ino, m share.Memory) error {
	blobs := m.Blobs
	if blobs == "" && len(m.Pieces) > 1 {
		blobs = blobsOf(m)
	}
	var errs []error
	for _, x := range []struct{ name, value string }{
		{xattrDtype, m.Dtype}, {xattrShape, m.Shape}, {xattrBlobs, blobs},
	} {
		if x.value != "" {
			errs = append(errs, bs.attrs.setXattr(ctx, ino, x.name, []byte(x.value), 0))
		}
	}
	return errors.Join(errs...)
}

// blobsOf formats the sizes of the pieces as user.hmc.blobs does.
func blobsOf(m share.Memory) string {
	sizes := make([]uint64, len(m.Pieces))
	for i := range m.Pieces {
		sizes[i] = uint64(m.Pieces[i].Size)
	}
	return tensors.NumbersText(sizes)
}
