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

// watch makes the object lost when its owner ends.
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
	b.body.SetCancel(cancel)
	return nil
}

// ownerEnded is called by the watcher. From its first line on nobody gets at
// the memory; the record follows, which waits for who changes the object now.
func (bs *bindings) ownerEnded(ino Ino, b *content.Bound) {
	b.End()
	bs.work.Go(func() { bs.lose(context.Background(), ino, b) })
}

// lose makes the record say that the content is gone, unless a replica takes
// its place.
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
		bs.log.Warn("record of a lost object not written", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
	if !gone {
		return
	}
	bs.tellLost(ctx, ino)
	if sourceOf(b) != nil {
		bs.keyed.expireLost(ctx, ino)
	} else {
		bs.log.Info("object lost with the process that owned its memory", zap.Uint64("ino", uint64(ino)))
	}
	bs.changes.tell(ino, true)
}

// tellLost tells of a key whose object is lost.
func (bs *bindings) tellLost(ctx context.Context, ino Ino) {
	in, err := bs.meta.Get(ctx, ino)
	if err != nil || in.Key == "" {
		return
	}
	// Before anybody tells that the name is gone.
	defer bs.names.lock(in.Parent, in.Parent)()
	if now, gone := bs.meta.Get(ctx, ino); gone == nil && now.Key == in.Key {
		bs.events.emit(EventLost, now.Key, now)
	}
}

// forgetBinding makes an object whose owner is gone an ordinary one, since it
// is cut to nothing. The caller has the lane.
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

// changes tells the function of OnChange of changes that no request made.
type changes struct {
	notices   *notices
	notifying sync.RWMutex
	// +checklocks:notifying
	notify func(ino Ino, lost bool)
}

// OnChange has fn called when an object was bound, when it gets another end, and
// when it is lost with its owner, which nobody has asked for. When it is bound,
// fn may be called within Bind. fn calls nothing of the store's, and nobody who reads waits for it. nil
// ends it; no call is under way when OnChange returns.
func (s *Store) OnChange(fn func(ino Ino, lost bool)) {
	s.changes.notifying.Lock()
	defer s.changes.notifying.Unlock()
	s.changes.notify = fn
}

func (ch *changes) tell(ino Ino, lost bool) {
	ch.notices.send(Notice{Ino: ino})
	ch.notifying.RLock()
	defer ch.notifying.RUnlock()
	if ch.notify != nil {
		ch.notify(ino, lost)
	}
}
