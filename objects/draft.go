package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// Draft is new content for a file, in separate memory on the file's device. It is
// invisible before Commit: a failure until then leaves the file unchanged. Its memory
// is reserved when it is made, so that on a full device it is Draft that fails.
//
// CopyIn may be called from any goroutine. Exactly one of Commit and Discard is called,
// once, with no CopyIn under way, and before the file is closed.
type Draft struct {
	file *File
	tier *content.Tier
	body content.Content
	size uint64
	// redo is for a file of the host tier; nil for others.
	redo *redo
	// before describes the file as it was.
	before draftMark

	// turn admits one write to device memory at a time.
	turn sync.Mutex
	// path is the path that the bytes took.
	// +checklocks:turn
	path transport.Path
}

// draftMark identifies a state of a file, so that a change is detected.
type draftMark struct {
	version uint64
	size    uint64
	// mtime is set for a host file, which the kernel may write without the daemon.
	mtime unix.Timespec
}

// Draft makes content of size bytes for the file.
//
// Errors: devices.ErrOutOfMemory; ErrLost; ErrBusy for a published file; ErrTooLarge;
// ErrInvalid if the file is memory of another process, of another size.
func (f *File) Draft(ctx context.Context, size uint64) (*Draft, error) {
	d, err := f.draft(ctx, size)
	if err != nil {
		return nil, fmt.Errorf("new content: %w", err)
	}
	return d, nil
}

func (f *File) draft(ctx context.Context, size uint64) (*Draft, error) {
	o := f.obj
	if size > maxSize {
		return nil, fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	}
	if err := o.notOffered(); err != nil {
		return nil, err
	}
	d := &Draft{file: f, size: size}
	var err error
	if d.before, err = o.draftMark(); err != nil {
		return nil, err
	}
	t, body := o.place()
	if isBound(body) && size != d.before.size {
		return nil, fmt.Errorf("it is memory of another process with a fixed size of %d bytes, not %d: %w", d.before.size, size, ErrInvalid)
	}
	d.tier = t
	if t.Files == nil {
		d.body = f.store.table.emptyContent(t)
		if err = reserveAll(ctx, d.body, size); err != nil {
			return nil, errors.Join(err, d.body.Discard())
		}
		return d, nil
	}
	// An inode number without a record: the next start removes a file of the tier under
	// such a number.
	inos, err := f.store.meta.NewInos(ctx, 1)
	if err != nil {
		return nil, err
	}
	h, err := content.CreateHostFile(t, f.store.engine, uint64(inos[0]))
	if err != nil {
		return nil, err
	}
	d.body = h
	if err = reserveAll(ctx, h, size); err == nil {
		err = h.Cut(ctx, size)
	}
	if err == nil {
		d.redo, err = newRedo(t, uint64(inos[0]))
	}
	if err != nil {
		return nil, errors.Join(err, h.Discard())
	}
	return d, nil
}

// reserveAll reserves memory for the first size bytes of a content.
func reserveAll(ctx context.Context, body content.Content, size uint64) error {
	if size == 0 {
		return nil
	}
	return body.Reserve(ctx, 0, size)
}

// draftMark returns the mark of the present state.
func (o *object) draftMark() (draftMark, error) {
	m := draftMark{version: o.version.Load()}
	var err error
	if m.size, err = o.end(); err != nil {
		return m, err
	}
	if h, ok := o.content().(*content.HostFile); ok {
		st, failure := h.Stat()
		if failure != nil {
			return m, failure
		}
		m.mtime = st.Mtim
	}
	return m, nil
}

// Size returns the size of the draft, in bytes.
func (d *Draft) Size() uint64 { return d.size }

// CopyIn copies src to off.
func (d *Draft) CopyIn(ctx context.Context, src transport.Span, off uint64) error {
	n := uint64(src.Len())
	if off > d.size || n > d.size-off {
		return fmt.Errorf("%d bytes at offset %d exceed the draft of %d: %w", n, off, d.size, ErrInvalid)
	}
	if n == 0 {
		return nil
	}
	write := d.copyHost
	if d.tier.Files == nil {
		write = d.copyDevice
	}
	if done, err := write(ctx, off, src); err != nil {
		return fmt.Errorf("write %d bytes to a draft, %d written: %w", n, done, err)
	}
	return nil
}

// copyHost writes to host memory, concurrently with other writes.
func (d *Draft) copyHost(ctx context.Context, off uint64, src transport.Span) (uint64, error) {
	done, path, err := d.body.Write(ctx, off, src)
	d.turn.Lock()
	defer d.turn.Unlock()
	d.path = path
	return done, err
}

// copyDevice writes to device memory, one write at a time.
func (d *Draft) copyDevice(ctx context.Context, off uint64, src transport.Span) (done uint64, err error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	done, d.path, err = d.body.Write(ctx, off, src)
	return done, err
}

// Discard frees the memory.
func (d *Draft) Discard() {
	if err := errors.Join(d.redo.remove(), d.body.Discard()); err != nil {
		d.file.store.log.Warn("could not free the memory of a draft", zap.Error(err))
	}
}

// Commit makes the draft the content of the file, and the file as long as the draft.
// The draft ends with it, also after an error.
//
// In device memory that is one step: a reader finds either the old bytes or the new
// ones. Exported memory, which others may have mapped, stays in place, and so does a
// file of the host tier, which the kernel may be serving by passthrough: there the new
// bytes are copied over the old ones, which needs no more memory, and a reader may
// meanwhile find some of both. If the daemon dies meanwhile, the next one repeats the
// copy for a file of the host tier; memory bound on a device, where the draft is lost
// too, is left with some of both.
//
// Errors: ErrBusy for a file that was changed since Draft, that is published, or that
// would become shorter than its exported part; ErrLost. After these the file is
// unchanged. Errors of the device leave unspecified bytes in a file that is copied
// over.
func (d *Draft) Commit(ctx context.Context, killPriv bool) error {
	ctx = context.WithoutCancel(ctx)
	o := d.file.obj
	var old content.Content
	err := o.change(ctx, func() (err error) {
		if err = d.mayCommit(); err != nil {
			return err
		}
		if killPriv {
			if err = d.file.store.attrs.killPriv(ctx, o.ino); err != nil {
				return err
			}
		}
		if d.size > 0 {
			if err = o.mark(ctx, d.size); err != nil {
				return err
			}
		}
		if d.switches() {
			old = d.take()
			return nil
		}
		if d.redo != nil {
			if err = d.redo.arm(o.ino, d.size); err != nil {
				return err
			}
		}
		return d.copyOver(ctx)
	})
	if old == nil {
		old = d.body
	}
	if failure := errors.Join(d.redo.remove(), old.Discard()); failure != nil {
		o.table.log.Warn("could not free memory that was replaced", zap.Uint64("ino", uint64(o.ino)), zap.Error(failure))
	}
	if err != nil {
		return fmt.Errorf("replace the content of object %d: %w", o.ino, err)
	}
	d.file.store.changes.tell(o.ino, false)
	return nil
}

// Check fails if Commit would fail in the present state.
func (d *Draft) Check() error {
	if err := d.unchanged(0); err != nil {
		return fmt.Errorf("replace the content of object %d: %w", d.file.obj.ino, err)
	}
	return nil
}

// mayCommit fails if the content was changed since Draft, or must not be replaced. The
// caller has the lane, and has raised the version.
func (d *Draft) mayCommit() error {
	if err := d.unchanged(1); err != nil {
		return err
	}
	return d.file.obj.mayCut(d.size)
}

// unchanged fails if the file was changed since Draft, apart from own changes of the
// version by the caller.
func (d *Draft) unchanged(own uint64) error {
	o := d.file.obj
	if err := o.notOffered(); err != nil {
		return err
	}
	now, err := o.draftMark()
	if err != nil {
		return err
	}
	now.version -= own
	if t, _ := o.place(); t != d.tier || now != d.before {
		return fmt.Errorf("it was changed in the meantime: %w", ErrBusy)
	}
	return nil
}

// switches reports whether the draft's memory can replace the file's.
func (d *Draft) switches() bool {
	o := d.file.obj
	x, ok := o.content().(*content.Extents)
	return ok && o.exported() == 0 && !x.IsPinned()
}

// take makes the draft's memory the file's, and returns the old content.
func (d *Draft) take() content.Content {
	o := d.file.obj
	now := o.table.meta.Now()
	d.turn.Lock()
	path := d.path
	d.turn.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.body
	o.body, o.size, o.mtime, o.ctime = d.body, d.size, now, now
	if path != "" {
		o.path = path
	}
	o.keepLocked()
	// A reader that has read the old size must not find the new content: see look.
	o.cuts.Add(1)
	o.dirty.Store(true)
	return old
}

// copyOver copies the draft over the file's bytes. The caller has the lane.
func (d *Draft) copyOver(ctx context.Context) error {
	o := d.file.obj
	body := o.content()
	if !isBound(body) {
		if err := reserveAll(ctx, body, d.size); err != nil {
			return err
		}
	}
	look := func(off, n uint64) (content.Range, error) { return d.body.Find(off, n, false) }
	d.turn.Lock()
	path := d.path
	d.turn.Unlock()
	err := content.Walk(ctx, look, 0, d.size, func(at content.Piece) error {
		if at.Hole {
			return body.Clear(ctx, at.Off, at.N, true)
		}
		n, _, err := body.Write(ctx, at.Off, at.Span)
		if n > 0 {
			o.touch(at.Off+n, path)
		}
		return err
	})
	if err != nil || d.before.size <= d.size {
		return err
	}
	o.shrink(d.size)
	return body.Cut(ctx, d.size)
}
