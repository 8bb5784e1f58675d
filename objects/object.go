package objects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// object is a regular file in use.
//
// For content in device memory, the object holds the authoritative size and times, and
// the record is updated when the last user leaves. On the host tier the tmpfs file
// holds them, since the kernel writes to it by passthrough.
type object struct {
	table *table
	ino   Ino
	lane  soleLane
	// version is incremented at the start and at the end of each change of the content.
	version atomic.Uint64
	// cuts is incremented when a truncation begins, see look.
	cuts atomic.Uint64
	// dirty reports that the record is older than the values here.
	dirty atomic.Bool

	mu sync.RWMutex
	// +checklocks:mu
	tier *content.Tier
	// +checklocks:mu
	body content.Content
	// mu also guards the facts.
	facts
	// foreign reports that another process can change the bytes without the store.
	foreign atomic.Bool
	// +checklocks:mu
	export *export
	// revived reports that the host file may be newer than some handles.
	revived atomic.Bool
	// offer is nil for a file that is not in publish/. A goroutine that changes it has the
	// lane, or the only reference to the object.
	offer atomic.Pointer[offer]
}

// facts are the values of which an object in device memory is more current than its
// record.
type facts struct {
	size  uint64
	atime metadata.Timespec
	mtime metadata.Timespec
	ctime metadata.Timespec
	epoch metadata.Epoch
	path  transport.Path
}

// load loads an object from its records; on the host tier, also one that has lost its
// last name, from its orphan's inode.
func (tb *table) load(ctx context.Context, ino Ino) (*object, error) {
	in, err := tb.meta.Get(ctx, ino)
	if errors.Is(err, metadata.ErrNotExist) {
		if orphan, ok := tb.orphanOf(ino); ok && tb.tiers.inHostTier(orphan) {
			in, err = orphan, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("load object %d: %w", ino, err)
	}
	if !in.IsRegular() {
		return nil, fmt.Errorf("load inode %d of mode %o: %w", ino, in.Mode, ErrInvalid)
	}
	t, err := tb.tiers.named(in.Device)
	if err != nil {
		return nil, err
	}
	o := &object{table: tb, ino: ino, tier: t, facts: facts{
		size: in.Size, atime: in.Atime, mtime: in.Mtime, ctime: in.Ctime,
		epoch: in.Epoch, path: transport.Path(in.Path),
	}}
	o.body, err = tb.loadContent(ctx, t, in)
	if err != nil {
		return nil, fmt.Errorf("load object %d: %w", ino, err)
	}
	if _, gone := o.body.(content.Lost); gone && (in.Epoch == 0 || in.Epoch == t.Epoch()) && in.Bound == metadata.Unbound {
		o.epoch = t.PastEpoch()
	}
	if x, ok := o.body.(*content.Extents); ok {
		err = x.Keep(uint64(ino), o.kept(), false)
	}
	if err != nil {
		return nil, fmt.Errorf("load object %d: %w", ino, err)
	}
	if in.Parent == metadata.PublishIno {
		o.offer.Store(newOffer(in.Name, in.Taken, nil))
	}
	return o, nil
}

// notOffered fails for a file in publish/, which must not be changed or exported. The
// result is stable while the caller has the lane.
//
// Errors: ErrBusy.
func (o *object) notOffered() error {
	if o.offer.Load() != nil {
		return fmt.Errorf("object %d is published: %w", o.ino, ErrBusy)
	}
	return nil
}

func (tb *table) loadContent(ctx context.Context, t *content.Tier, in metadata.Inode) (content.Content, error) {
	// A bound object is in the table from its binding on, or from the recovery of the next
	// run.
	if IsLost(in, t.Epoch()) || in.Bound == metadata.BoundLive {
		return content.Lost{}, nil
	}
	if t.Files != nil {
		h, err := content.OpenHostFile(t, tb.engine, uint64(in.Ino))
		if errors.Is(err, fs.ErrNotExist) {
			return content.Lost{}, nil
		}
		return h, err
	}
	x := tb.emptyContent(t)
	if in.Epoch != t.Epoch() {
		return x, nil
	}
	maps, err := tb.meta.Mappings(ctx, in.Ino)
	if err != nil {
		return nil, err
	}
	if err = x.Load(uint64(in.Ino), maps); errors.Is(err, ErrLost) {
		tb.log.Error("an object is lost", zap.Uint64("ino", uint64(in.Ino)), zap.Error(err))
		return content.Lost{}, nil
	}
	return x, err
}

func (tb *table) emptyContent(t *content.Tier) *content.Extents {
	return content.NewExtents(t, tb.engine, func(msg string, err error) { tb.log.Warn(msg, zap.Error(err)) })
}

// IsLost reports whether an inode's content was in memory that no longer exists: that
// of another incarnation of its device than the present one, or of a process that has
// exited. The epoch of a device that is not present is 0.
func IsLost(in metadata.Inode, present metadata.Epoch) bool {
	return in.IsRegular() && (in.Bound == metadata.BoundLost || in.Epoch != 0 && in.Epoch != present)
}

func (o *object) content() content.Content {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.body
}

func (o *object) place() (*content.Tier, content.Content) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.tier, o.body
}

// mustStay reports whether the content can't be rebuilt from the records, or is held
// for another process.
func (o *object) mustStay() bool {
	if o.dirty.Load() {
		return true
	}
	o.mu.RLock()
	body, exported := o.body, o.export != nil
	o.mu.RUnlock()
	switch b := body.(type) {
	case *content.Extents:
		return exported || b.Damaged() || b.WholeBytes() > 0
	case *content.Bound:
		return true
	}
	return exported
}

func (o *object) overlay(in *metadata.Inode) error {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.path != "" {
		in.Path = string(o.path)
	}
	if h, ok := o.body.(*content.HostFile); ok {
		st, err := h.Stat()
		if err != nil {
			return err
		}
		overlayStat(in, st)
		return nil
	}
	in.Size, in.Atime, in.Mtime = o.size, o.atime, o.mtime
	if o.ctime.After(in.Ctime) {
		in.Ctime = o.ctime
	}
	in.Epoch = o.epoch
	in.Allocated = o.body.Usage()
	switch b := o.body.(type) {
	case *content.Bound:
		in.Bound = b.State()
	case content.Lost:
		if in.Bound == metadata.BoundLive {
			in.Bound = metadata.BoundLost
		}
	default:
		in.Bound = metadata.Unbound
	}
	return nil
}

// change runs fn, excluding all other changes of the content.
func (o *object) change(ctx context.Context, fn func() error) error {
	if err := o.lane.Enter(ctx); err != nil {
		return err
	}
	defer o.lane.Leave()
	defer o.table.notices.send(Notice{Ino: o.ino})
	o.version.Add(1)
	defer o.version.Add(1)
	err := fn()
	if err != nil && !errors.Is(err, ErrLost) {
		o.dirty.Store(true) // memory may have been allocated all the same
	}
	return err
}

// end returns the present size. That of a lost object is not known: the record has the
// size as of the last close.
//
// Errors: ErrLost.
func (o *object) end() (uint64, error) {
	size, _, err := o.extent()
	return size, err
}

// extent is end, and returns the content of that moment too.
func (o *object) extent() (size uint64, body content.Content, err error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	switch b := o.body.(type) {
	case content.Lost:
		return 0, b, fmt.Errorf("size of object %d: %w", o.ino, ErrLost)
	case *content.HostFile:
		st, err := b.Stat()
		return uint64(st.Size), b, err
	}
	return o.size, o.body, nil
}

// mark records, before the first byte of content is stored, that there is content in
// the present epoch, at least up to end: after a crash the object is lost, not empty.
// The caller has the lane.
func (o *object) mark(ctx context.Context, end uint64) error {
	o.mu.RLock()
	now, known, t, body := o.tier.Epoch(), o.epoch, o.tier, o.body
	o.mu.RUnlock()
	if t.Files != nil || isBound(body) {
		return nil
	}
	if err := o.ensureKept(body, known != now); err != nil || known == now {
		return err
	}
	if known != 0 {
		return fmt.Errorf("object %d on %s: %w", o.ino, t.Name, ErrLost)
	}
	_, err := o.table.meta.Update(context.WithoutCancel(ctx), o.ino, func(in *metadata.Inode) error {
		in.Epoch, in.Size = now, max(in.Size, end)
		return nil
	})
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		return fmt.Errorf("record that object %d has content: %w", o.ino, err)
	}
	o.mu.Lock()
	o.epoch = now
	o.keepLocked()
	o.mu.Unlock()
	return nil
}

// noteSize records the size of an object that has no content yet, only a hole: after a
// crash it is live, so its record must have its length.
func (o *object) noteSize(ctx context.Context) error {
	o.mu.RLock()
	size, none := o.size, o.epoch == 0 && o.tier.Files == nil && !isBound(o.body)
	o.mu.RUnlock()
	if !none {
		return nil
	}
	_, err := o.table.meta.Update(context.WithoutCancel(ctx), o.ino, func(in *metadata.Inode) error {
		in.Size = max(in.Size, size)
		return nil
	})
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		return fmt.Errorf("record the size of object %d: %w", o.ino, err)
	}
	return nil
}

// touch records a change of the content up to end, and the path that the bytes took.
func (o *object) touch(end uint64, path transport.Path) {
	now := o.table.meta.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size = max(o.size, end)
	o.mtime, o.ctime = now, now
	if path != "" {
		o.path = path
	}
	o.keepLocked()
	o.dirty.Store(true)
}

// accessed records a read that ended at a time, if Options.Atime says so.
func (o *object) accessed(at time.Time) {
	o.mu.RLock()
	_, host := o.body.(*content.HostFile)
	stale := !o.atime.After(o.mtime) || !o.atime.After(o.ctime)
	last := o.atime
	o.mu.RUnlock()
	if host || !o.table.atime.Notes(stale || at.Unix()-last.Sec > 24*60*60) {
		return
	}
	now := o.table.meta.Now()
	if now == last {
		return
	}
	o.mu.Lock()
	o.atime = now
	o.keepLocked()
	o.mu.Unlock()
	o.dirty.Store(true)
}

func (o *object) save(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := o.lane.Enter(ctx); err != nil {
		return err
	}
	defer o.lane.Leave()
	if !o.dirty.Swap(false) {
		return nil
	}
	o.mu.RLock()
	body, size := o.body, o.size // they change only in the lane
	o.mu.RUnlock()
	maps := body.Settle(size)
	x, inDevice := body.(*content.Extents)
	var changes uint64
	o.mu.RLock()
	f := o.facts
	if inDevice {
		changes = x.Changes()
	}
	o.mu.RUnlock()
	_, err := o.table.meta.SaveContent(ctx, o.ino, func(in *metadata.Inode) error {
		in.Path, in.Epoch = string(f.path), f.epoch
		if body.Backing() != nil {
			return nil
		}
		in.Size, in.Atime, in.Mtime = f.size, f.atime, f.mtime
		if f.ctime.After(in.Ctime) {
			in.Ctime = f.ctime
		}
		in.Allocated = body.Usage()
		return nil
	}, maps)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		o.dirty.Store(true)
		return fmt.Errorf("write the record of object %d: %w", o.ino, err)
	}
	if inDevice && err == nil {
		x.Saved(changes)
	}
	return nil
}

// settle frees the memory that was allocated ahead of writes.
func (o *object) settle(ctx context.Context) {
	if o.lane.Enter(context.WithoutCancel(ctx)) != nil {
		return
	}
	defer o.lane.Leave()
	o.mu.RLock()
	size, body := o.size, o.body
	o.mu.RUnlock()
	body.Settle(size)
}

// overlayStat overlays a record with the values of a file of the host tier.
func overlayStat(in *metadata.Inode, st unix.Stat_t) {
	in.Size = uint64(st.Size)
	in.Allocated = uint64(st.Blocks) * 512
	if in.Path == "" && in.Allocated > 0 {
		// The content did not come through hmcfs, so the kernel wrote it by passthrough.
		in.Path = string(transport.PathPassthrough)
	}
	in.Atime = metadata.Timespec{Sec: st.Atim.Sec, Nsec: uint32(st.Atim.Nsec)}
	in.Mtime = metadata.Timespec{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)}
	if ctime := (metadata.Timespec{Sec: st.Ctim.Sec, Nsec: uint32(st.Ctim.Nsec)}); ctime.After(in.Ctime) {
		in.Ctime = ctime
	}
}

func isBound(body content.Content) bool {
	_, theirs := body.(*content.Bound)
	return theirs
}
