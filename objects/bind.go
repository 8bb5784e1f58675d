package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/transport"
)

// BindRequest makes memory of another process the content of a file.
type BindRequest struct {
	// Memory is the memory that was asked for.
	Memory share.Memory
	// Handles are the pieces' memory, in their order, opened. Bind takes the
	// descriptors over, also when it fails. Where it is nil, Bind opens what
	// Memory names.
	Handles []devices.Handle
}

// bindings makes memory of other processes and of holders the content of objects, and
// follows the end of it.
type bindings struct {
	meta   *metadata.Store
	engine *transport.Engine
	log    *zap.Logger
	// owners tells when processes end that own memory.
	owners *owner.Watcher
	guard  *owner.Guard
	// work counts what goes on in the background.
	work    *sync.WaitGroup
	tiers   tiers
	table   *table
	attrs   *attributes
	access  *access
	events  *events
	names   *names
	changes *changes
	keyed   *keyed
	// refusedBlobs counts what holders with too many blobs were refused.
	refusedBlobs atomic.Uint64
}

// Bind makes memory that another process owns the content of the file ino,
// which must be a regular file without content that nobody has open. The file
// is that memory from then on: nothing is copied, and unlinking only unbinds.
// When the owner ends, the object is lost.
//
// Errors: ErrForbidden when the caller may not write the file, or the memory
// is not the caller's; ErrBusy when the file has content or is open; devices.ErrHandle
// for what names no memory of the file's device; ErrInvalid for dtype, shape
// and blobs that don't fit.
func (s *Store) Bind(ctx context.Context, ino Ino, who Caller, r BindRequest) error {
	b, record, err := s.bindings.openBinding(ctx, ino, who, r)
	if err != nil {
		return fmt.Errorf("bind object %d: %w", ino, err)
	}
	if err = s.bindings.attach(ctx, ino, b, record); err != nil {
		b.body.End()
		return errors.Join(fmt.Errorf("bind object %d: %w", ino, err), b.letOwnerGo())
	}
	if err = s.bindings.describe(ctx, ino, record.Memory); err != nil {
		s.log.Warn("what a bound object holds could not be noted", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	err = s.bindings.watch(ino, b) //nolint:contextcheck // it lasts as long as the owner
	s.changes.tell(ino, false)
	return err
}

// attach gives an object without content the memory of another process.
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
		bs.log.Warn("memory of a bound object not given back", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	return nil
}

// become gives the object another content and returns the old one.
func (o *object) become(b *content.Bound, f facts) content.Content {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.body
	o.body, o.facts = b, f
	o.foreign.Store(true)
	return old
}

// mayBind fails unless the object has no content, and is on the device that
// the memory was found to be of. The caller has the lane.
func (o *object) mayBind(of *content.Tier) error {
	if err := o.notOffered(); err != nil {
		return err
	}
	t, body := o.place()
	if t != of {
		return fmt.Errorf("the file was moved from %s to %s meanwhile: %w", of.Name, t.Name, ErrBusy)
	}
	switch body.(type) {
	case *content.Bound:
		return fmt.Errorf("the file is bound already; remove it to unbind: %w", ErrBusy)
	case content.Lost:
		return fmt.Errorf("the file's content is lost; truncate it to 0 first: %w", ErrBusy)
	}
	size, err := o.end()
	if err != nil {
		return err
	}
	if size > 0 || body.Usage() > 0 || o.exported() > 0 {
		return fmt.Errorf("the file has content, %d bytes; bind an empty one: %w", size, ErrBusy)
	}
	return nil
}

// describe sets what was said of the bytes. It was checked before.
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

// blobsOf lists the pieces' sizes as user.hmc.blobs does.
func blobsOf(m share.Memory) string {
	sizes := make([]string, len(m.Pieces))
	for i := range m.Pieces {
		sizes[i] = strconv.FormatUint(uint64(m.Pieces[i].Size), 10)
	}
	return strings.Join(sizes, ",")
}
