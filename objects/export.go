package objects

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
)

// ExportOptions say how memory is exported.
type ExportOptions struct {
	// Kind is the kind of handle; empty selects the device's preferred kind.
	Kind devices.HandleKind
	// Holder is the process for which the export lasts: it ends when the process exits. 0
	// makes an export that lasts until EndExport.
	Holder int
	// Tensor limits what is described to one tensor of the file, by its path in the view; the
	// export is that of the file.
	Tensor string
	// Session makes an export that lasts until Exported.End or EndExport.
	Session bool
}

// Exported describes memory of a file for another process.
type Exported struct {
	Memory share.Memory
	// Handle is the same memory with its descriptor, which the caller closes.
	Handle devices.Handle
	// End ends a session, and must be called once; nil without a session.
	End func()
}

// exports exports the memory of objects to other processes, and handles the end of
// those.
type exports struct {
	owners  *owner.Watcher
	work    *sync.WaitGroup
	table   *table
	attrs   *attributes
	headers *headers
}

// Export makes the memory of the file ino available to another process. If the content
// is not in one allocation, it is moved into one first. While it is exported, the
// exported part can't be truncated; if the file grows, the export keeps its length.
//
// Errors: ErrForbidden if the caller may not read and write the file, or the holder is
// not the caller's; ErrInvalid for an empty file; ErrBusy if it is exported as another
// kind; ErrLost; ErrUnsupported for a bound file, and devices.ErrUnsupported if the
// device has no such handles; devices.ErrOutOfMemory if there is no room for the move;
// metadata.ErrNotExist if the file does not contain the tensor.
func (s *Store) Export(ctx context.Context, ino Ino, who Caller, opts ExportOptions) (Exported, error) {
	holder, err := s.exports.mayExport(ctx, ino, who, opts)
	if err != nil {
		return Exported{}, fmt.Errorf("export object %d: %w", ino, err)
	}
	o, err := s.table.pin(ctx, ino, pinUse)
	if err != nil {
		return Exported{}, errors.Join(fmt.Errorf("export object %d: %w", ino, err), closeProcess(holder))
	}
	defer s.table.unpin(context.WithoutCancel(ctx), o, pinUse)
	var out Exported
	err = o.change(ctx, func() (err error) {
		if err = o.beginExport(ctx, opts.Kind); err != nil {
			return err
		}
		if opts.Session {
			out, err = o.beginSession() //nolint:contextcheck // the session outlives the request
			return err
		}
		err = s.exports.addHolder(o, holder) //nolint:contextcheck // the export lasts until the holder ends
		holder = nil
		if err == nil {
			out, err = o.exportedAs()
		}
		return err
	})
	if err = errors.Join(err, closeProcess(holder)); err != nil {
		return Exported{}, fmt.Errorf("export object %d: %w", ino, err)
	}
	if opts.Tensor != "" {
		err = s.describeTensorExport(ctx, ino, opts.Tensor, &out)
	} else {
		err = s.exports.describeExport(ctx, ino, &out.Memory)
	}
	if err != nil {
		if out.End != nil {
			out.End()
		}
		return Exported{}, errors.Join(fmt.Errorf("export object %d: %w", ino, err), out.Handle.Close())
	}
	return out, nil
}

// mayExport checks that the caller may export the file, and finds the process that the
// export is for; nil if none is named.
func (es *exports) mayExport(ctx context.Context, ino Ino, who Caller, opts ExportOptions) (*owner.Process, error) {
	a, err := es.attrs.get(ctx, ino)
	switch {
	case err != nil:
		return nil, err
	case !a.IsRegular():
		return nil, fmt.Errorf("only a regular file has memory: %w", ErrInvalid)
	case !who.May(&a.Inode, PermRead|PermWrite):
		return nil, fmt.Errorf("user %d has no permission to read and write the file: %w", who.UID, ErrForbidden)
	case a.Nlink == 0:
		return nil, fmt.Errorf("the file no longer has a name: %w", ErrInvalid)
	case a.State == StateBound:
		return nil, fmt.Errorf("its memory belongs to another process; request a handle from that process: %w", ErrUnsupported)
	case opts.Holder == 0:
		return nil, nil
	}
	return who.process(opts.Holder)
}

// beginExport ensures that there is an export of the kind. The caller has the lane.
func (o *object) beginExport(ctx context.Context, kind devices.HandleKind) error {
	if err := o.notOffered(); err != nil {
		return err
	}
	if e := o.exporting(); e != nil {
		if x, ok := o.content().(*content.Extents); ok && x.CheckEpoch() != nil {
			return errors.Join(fmt.Errorf("the exported memory no longer exists: %w", ErrLost), o.endExport())
		}
		if kind != "" && kind != e.kind {
			return fmt.Errorf("it is already exported as %s; end that export first: %w", e.kind, ErrBusy)
		}
		return nil
	}
	size, err := o.end()
	if err != nil {
		return err
	}
	if size == 0 {
		return fmt.Errorf("the file is empty and has no memory to export: %w", ErrInvalid)
	}
	handle, err := o.nameMemory(ctx, size, kind)
	if err != nil {
		return err
	}
	e := &export{kind: handle.Kind, length: size, handle: handle, holders: map[owner.ID]func(){}}
	if e.kind == devices.HandleMemfd {
		if e.file, _, err = owner.Facts(handle.File); err != nil {
			return errors.Join(err, handle.Close())
		}
		o.table.shared.add(e.file, 1)
	}
	o.mu.Lock()
	o.export = e
	o.foreign.Store(true)
	o.mu.Unlock()
	if _, leaving := o.table.orphanOf(o.ino); leaving && e.kind == devices.HandleIPC {
		return errors.Join(fmt.Errorf("the file is being removed: %w", ErrBusy), o.endExport())
	}
	return nil
}

// nameMemory makes the content exportable and returns a handle of it.
func (o *object) nameMemory(ctx context.Context, size uint64, kind devices.HandleKind) (devices.Handle, error) {
	t, body := o.place()
	switch b := body.(type) {
	case *content.HostFile:
		if kind != "" && kind != devices.HandleMemfd {
			return devices.Handle{}, fmt.Errorf("can't export memory of %s as %s; use %s: %w", t.Name, kind, devices.HandleMemfd, devices.ErrUnsupported)
		}
		f, err := b.Share(ctx)
		return devices.Handle{Kind: devices.HandleMemfd, Size: devices.Size(size), File: f}, err
	case *content.Extents:
		kinds := devices.ExportKinds(t.Dev)
		if len(kinds) == 0 {
			return devices.Handle{}, fmt.Errorf("can't export memory of %s: its driver library provides no handles: %w", t.Name, devices.ErrUnsupported)
		}
		if kind == "" {
			kind = kinds[0]
		}
		if err := o.mark(ctx, size); err != nil { // a hole becomes content
			return devices.Handle{}, err
		}
		mem, err := b.Gather(ctx, size, kind)
		if err != nil {
			return devices.Handle{}, err
		}
		h, err := devices.Export(ctx, mem)
		if err == nil {
			h.Kind, h.Size, h.Allocation = kind, devices.Size(size), mem.Size()
			b.Pin(size)
			// The records no longer say where the bytes are.
			o.dirty.Store(true)
		}
		return h, err
	}
	return devices.Handle{}, fmt.Errorf("no memory to export: %w", ErrLost)
}

// addHolder makes the export last for a process, of which it takes ownership; for nil,
// until EndExport.
func (es *exports) addHolder(o *object, p *owner.Process) error {
	o.mu.Lock()
	e := o.export
	if p == nil {
		e.lasting = true
		o.mu.Unlock()
		return nil
	}
	id := p.ID()
	_, known := e.holders[id]
	if !known {
		e.holders[id] = func() {} // until it is watched
	}
	o.mu.Unlock()
	if known {
		return p.Close()
	}
	cancel, err := es.owners.Watch(p, func() { es.work.Go(func() { es.table.release(o.ino, e, func() { delete(e.holders, id) }) }) })
	if err != nil {
		return errors.Join(err, o.endUse(e, func() { delete(e.holders, id) }))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := e.holders[id]; there {
		e.holders[id] = cancel
	}
	return nil
}

// release is endUse for a caller that has neither the lane nor a pin.
func (tb *table) release(ino Ino, e *export, remove func()) {
	o := tb.pinLoaded(ino)
	if o == nil {
		return
	}
	defer tb.unpin(context.Background(), o, pinUse)
	if err := o.lane.Enter(context.Background()); err != nil {
		return
	}
	defer o.lane.Leave()
	if err := o.endUse(e, remove); err != nil {
		tb.warn("could not end an export", err)
	}
}

// endUse calls remove, which removes one holder or session from an export, with the
// object's mu held, and ends the export with the last of them. The caller has the lane.
func (o *object) endUse(e *export, remove func()) error {
	o.mu.Lock()
	remove()
	last := o.export == e && !e.held()
	o.mu.Unlock()
	if last {
		return o.endExport()
	}
	return nil
}

// beginSession makes the present export last for a session too, and returns it. The
// caller has the lane.
func (o *object) beginSession() (Exported, error) {
	o.mu.Lock()
	e := o.export
	e.sessions++
	o.mu.Unlock()
	out, err := o.exportedAs()
	if err == nil {
		out.End = func() { o.table.release(o.ino, e, func() { e.sessions-- }) }
		return out, nil
	}
	return Exported{}, errors.Join(err, o.endUse(e, func() { e.sessions-- }))
}

// exportedAs describes the present export. The caller has the lane.
func (o *object) exportedAs() (Exported, error) {
	e := o.exporting()
	t, _ := o.place()
	info := t.Dev.Info()
	h := e.handle
	p := share.Piece{Kind: e.kind, Offset: h.Offset, Size: h.Size, Allocation: h.Allocation, Handle: hex.EncodeToString(h.Bytes)}
	if h.File != nil {
		n := int(h.File.Fd())
		p.FD = &n
		// A descriptor of device memory refers to a device file; reopened by its path, it
		// refers to no memory.
		if e.kind == devices.HandleMemfd {
			p.Path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n)
		}
		f, err := owner.Anew(h.File)
		if err != nil {
			return Exported{}, err
		}
		h.File = f
	}
	return Exported{Handle: h, Memory: share.Memory{
		Family: info.Family, Device: info.UUID, PID: os.Getpid(),
		Size: h.Size, Pieces: []share.Piece{p},
	}}, nil
}

// describeExport sets the description of the bytes, if it applies to exactly the
// exported range.
func (es *exports) describeExport(ctx context.Context, ino Ino, m *share.Memory) error {
	a, err := es.attrs.get(ctx, ino)
	if err != nil || a.Size != uint64(m.Size) {
		return err
	}
	for name, field := range map[string]*string{xattrDtype: &m.Dtype, xattrShape: &m.Shape, xattrBlobs: &m.Blobs} {
		value, err := es.headers.tensorXattr(ctx, a, name)
		if err != nil && !errors.Is(err, metadata.ErrNoXattr) {
			return err
		}
		*field = string(value)
	}
	return nil
}

// EndExport ends every export of the file, which may then be truncated again. A process
// that has the memory mapped keeps it for as long as the vendor's library allows.
//
// Errors: metadata.ErrNoXattr if it is not exported.
func (s *Store) EndExport(ctx context.Context, ino Ino) error {
	o := s.table.pinLoaded(ino)
	if o == nil {
		return fmt.Errorf("end the exports of object %d: %w", ino, metadata.ErrNoXattr)
	}
	defer s.table.unpin(context.WithoutCancel(ctx), o, pinUse)
	if err := o.lane.Enter(ctx); err != nil {
		return err
	}
	defer o.lane.Leave()
	if o.exporting() == nil {
		return fmt.Errorf("end the exports of object %d: %w", ino, metadata.ErrNoXattr)
	}
	return o.endExport()
}

// Exported returns how many of an object's first bytes other processes may have mapped,
// and by which kind of handle; 0 if it is not exported.
func (s *Store) Exported(ctx context.Context, ino Ino) (uint64, devices.HandleKind) {
	o := s.table.pinLoaded(ino) // an object that is not loaded is not exported
	if o == nil {
		return 0, ""
	}
	defer s.table.unpin(context.WithoutCancel(ctx), o, pinUse)
	if e := o.exporting(); e != nil {
		return e.length, e.kind
	}
	return 0, ""
}
