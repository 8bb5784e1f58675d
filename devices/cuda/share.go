package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// shareUnit is the unit in which memory that is exported by IPC is taken, in bytes. The
// driver shares the whole block that an allocation lies in, and puts several
// smaller ones into one.
const shareUnit = 2 * devices.MiB

// opened is memory of another process that is open here, by one handle.
type opened struct {
	// base is the driver's pointer: it is closed, and offsets count from it.
	base address
	// size is the number of bytes from base on.
	size devices.Size
	// users are the memories made of it.
	users int
}

// ExportKinds lists what the card can do. IPC is first, because that is what
// PyTorch and CuPy open.
func (d *device) ExportKinds() []devices.HandleKind {
	var kinds []devices.HandleKind
	if d.entry.ipc {
		kinds = append(kinds, devices.HandleIPC)
	}
	if d.entry.export {
		kinds = append(kinds, devices.HandleVMM)
	}
	return kinds
}

// AllocShared takes memory that can be exported as kind, in whole units of
// the kind.
func (d *device) AllocShared(ctx context.Context, n devices.Size, kind devices.HandleKind) (*devices.Memory, error) {
	unit, make := shareUnit, d.newShared
	switch {
	case kind == devices.HandleIPC && d.entry.ipc:
	case kind == devices.HandleVMM && d.entry.export:
		unit, make = d.units.exported, d.newExported
	default:
		return nil, fmt.Errorf("export memory of %s as %s: %w", d.info.Name, kind, devices.ErrUnsupported)
	}
	leave, err := d.life.Enter(ctx, d)
	if err != nil {
		return nil, err
	}
	defer leave()
	if n == 0 {
		return nil, fmt.Errorf("allocate 0 bytes on %s: %w", d.info.Name, devices.ErrRange)
	}
	whole := roundUp(n, unit)
	if whole < n {
		return nil, &devices.OutOfMemoryError{Device: d.info.Name, Asked: n, Free: d.left()}
	}
	mem, err := d.take(n, whole, make)
	if err != nil || whole == n {
		return mem, err
	}
	// Who opens the handle sees the whole unit, and must not see what somebody
	// left there.
	err = d.withLane(ctx, func(l *lane) error { return d.set(l, blockOf(mem.All()).addr.at(n), whole-n, 0) })
	if err != nil {
		return nil, errors.Join(err, d.retireHeld(blockOf(mem.All())))
	}
	return mem, nil
}

// newShared takes plain memory that may be exported.
func (d *device) newShared(n devices.Size) (*block, error) {
	b, err := d.newPlain(n)
	if err != nil {
		return nil, err
	}
	b.kind = devices.HandleIPC
	return b, nil
}

// Export names a memory of AllocShared.
func (d *device) Export(ctx context.Context, m *devices.Memory) (devices.Handle, error) {
	leave, err := d.life.Begin(ctx, d, m.All(), int(m.Size()))
	if err != nil {
		return devices.Handle{}, err
	}
	defer leave()
	b := blockOf(m.All())
	h := devices.Handle{Kind: b.kind, Device: d.info.UUID, Size: m.Size()}
	err = d.on(func() (err error) {
		switch b.kind {
		case devices.HandleIPC:
			return d.exportIPC(b, &h)
		case devices.HandleVMM:
			return d.exportVirtual(b, &h)
		default:
			return fmt.Errorf("memory of %s that was not allocated to be exported: %w", d.info.Name, devices.ErrUnsupported)
		}
	})
	if err != nil {
		return devices.Handle{}, fmt.Errorf("export %v of %s: %w", m.Size(), d.info.Name, err)
	}
	return h, nil
}

// exportIPC fills in what an IPC handle says. It names the whole block of the
// driver's that the memory lies in.
func (d *device) exportIPC(b *block, h *devices.Handle) error {
	base, size, err := d.api.addressRange(b.addr)
	if err != nil {
		return err
	}
	handle, err := d.api.ipcGet(b.addr)
	if err != nil {
		return err
	}
	h.Bytes = handle.bytes()
	h.Offset = devices.Offset(b.addr - base)
	h.Allocation = size
	d.openMu.Lock()
	defer d.openMu.Unlock()
	if _, before := d.exported[handle]; before {
		return nil
	}
	d.exported[handle] = struct{}{}
	give := b.give
	b.give = func() error {
		d.openMu.Lock()
		delete(d.exported, handle)
		d.openMu.Unlock()
		return give()
	}
	return nil
}

// exportVirtual fills in what a descriptor says.
func (d *device) exportVirtual(b *block, h *devices.Handle) error {
	fd, err := d.api.exportPhysical(b.virtual.physical)
	if err != nil {
		return err
	}
	unix.CloseOnExec(fd)
	h.File = os.NewFile(uintptr(fd), "cuda memory")
	h.Allocation = b.virtual.size
	return nil
}

// Import opens memory of another process.
func (d *device) Import(ctx context.Context, h devices.Handle) (*devices.Memory, error) {
	if err := d.checkHandle(h); err != nil {
		return nil, fmt.Errorf("open a %s handle on %s: %w", h.Kind, d.info.Name, err)
	}
	leave, err := d.life.Enter(ctx, d)
	if err != nil {
		return nil, err
	}
	defer leave()
	var b *block
	err = d.on(func() (err error) {
		if h.Kind == devices.HandleIPC {
			b, err = d.importIPC(h)
		} else {
			b, err = d.importVirtual(h)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a %s handle on %s: %w", h.Kind, d.info.Name, err)
	}
	return d.memory(b, h.Size), nil
}

// checkHandle refuses what needs no driver to be seen as wrong.
func (d *device) checkHandle(h devices.Handle) error {
	switch {
	case h.Kind == devices.HandleIPC && d.entry.ipc, h.Kind == devices.HandleVMM && d.entry.export:
	default:
		return devices.ErrUnsupported
	}
	if err := d.info.CheckUUID(h.Device); err != nil {
		return err
	}
	part := devices.Range{Off: h.Offset, Len: h.Size}
	switch {
	case h.Size == 0:
		return fmt.Errorf("it names no bytes: %w", devices.ErrHandle)
	case h.Allocation != 0 && !part.Within(h.Allocation):
		return outside(part, h.Allocation)
	case h.Kind == devices.HandleIPC && len(h.Bytes) != ipcHandleSize:
		return fmt.Errorf("it has %d bytes instead of %d: %w", len(h.Bytes), ipcHandleSize, devices.ErrHandle)
	case h.Kind == devices.HandleVMM && h.File == nil:
		return fmt.Errorf("it has no descriptor: %w", devices.ErrHandle)
	}
	return nil
}

func outside(part devices.Range, whole devices.Size) error {
	return fmt.Errorf("%v lies outside of the allocation of %d bytes: %w", part, uint64(whole), devices.ErrHandle)
}

// refused makes what the driver says of a handle an ErrHandle, unless the card
// has failed.
func refused(what string, err error) error {
	if codeOf(err).Sticky() || codeOf(err) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w: %w", what, devices.ErrHandle, err)
}

// importIPC opens a handle, or uses it again.
func (d *device) importIPC(h devices.Handle) (*block, error) {
	handle := ipcHandleOf(h.Bytes)
	d.openMu.Lock()
	defer d.openMu.Unlock()
	if _, own := d.exported[handle]; own {
		return nil, fmt.Errorf("this process has exported it, and CUDA opens it in others only: %w", devices.ErrHandle)
	}
	o := d.opened[handle]
	if o == nil {
		var err error
		if o, err = d.openIPC(handle); err != nil {
			return nil, err
		}
		d.opened[handle] = o
	}
	o.users++
	b := &block{
		addr: o.base.at(devices.Size(h.Offset)),
		give: func() error { return d.closeIPC(handle, o) },
	}
	if part := (devices.Range{Off: h.Offset, Len: h.Size}); !part.Within(o.size) {
		return nil, errors.Join(outside(part, o.size), d.leaveIPC(handle, o))
	}
	return b, nil
}

// openIPC opens a handle for the first time.
func (d *device) openIPC(handle ipcHandle) (*opened, error) {
	p, err := d.api.ipcOpen(handle)
	if err != nil {
		return nil, refused("the driver opens no memory by it; its process may have ended, "+
			"be this one, or be on another machine", err)
	}
	// The driver may count what lies before p to the same block.
	base, size, err := d.api.addressRange(p)
	if err != nil {
		return nil, errors.Join(err, d.api.ipcClose(p))
	}
	return &opened{base: p, size: size - devices.Size(p-base)}, nil
}

// closeIPC ends one use of a handle.
func (d *device) closeIPC(handle ipcHandle, o *opened) error {
	d.openMu.Lock()
	defer d.openMu.Unlock()
	return d.leaveIPC(handle, o)
}

// +checklocks:d.openMu
func (d *device) leaveIPC(handle ipcHandle, o *opened) error {
	if o.users--; o.users > 0 {
		return nil
	}
	delete(d.opened, handle)
	return d.api.ipcClose(o.base)
}

// importVirtual maps what a descriptor names. Its size is not to be asked of
// the driver: it refuses to map more than there is.
func (d *device) importVirtual(h devices.Handle) (*block, error) {
	end := devices.Size(h.Offset) + h.Size
	whole := roundUp(max(end, h.Allocation), d.units.least)
	if end < h.Size || whole < end {
		return nil, outside(devices.Range{Off: h.Offset, Len: h.Size}, h.Allocation)
	}
	conn, err := h.File.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", devices.ErrHandle, err)
	}
	var physical cuPhysical
	if cerr := conn.Control(func(fd uintptr) { physical, err = d.api.importPhysical(fd) }); cerr != nil {
		return nil, fmt.Errorf("%w: %w", devices.ErrHandle, cerr)
	}
	if err != nil {
		return nil, refused("the descriptor is of no memory of a card", err)
	}
	b, err := d.mapImported(physical, whole)
	if err != nil {
		return nil, errors.Join(err, d.api.releasePhysical(physical))
	}
	b.addr = b.addr.at(devices.Size(h.Offset))
	return b, nil
}

// mapImported maps physical memory of this card.
func (d *device) mapImported(physical cuPhysical, n devices.Size) (*block, error) {
	p, err := d.api.properties(physical)
	if err != nil {
		return nil, refused("the memory does not tell where it is", err)
	}
	if p.Location.Type != cuLocationDevice || p.Location.ID != int32(d.entry.device) {
		return nil, fmt.Errorf("the memory is of another card, number %d: %w", p.Location.ID, devices.ErrHandle)
	}
	b, err := d.newMapped(physical, n)
	if err != nil {
		return nil, refused("the memory is smaller than the handle says, or can't be mapped", err)
	}
	return b, nil
}
