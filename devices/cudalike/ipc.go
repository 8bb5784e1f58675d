package cudalike

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// sharer is the ability to share memory with other processes.
type sharer struct{ d *device }

var (
	_ devices.Exporter = sharer{}
	_ devices.Importer = sharer{}
)

// imports are the handles of other processes that a device has open. A handle
// is opened once, however many memories are parts of it: runtimes differ in
// what they do with a second opening.
type imports struct {
	mu sync.Mutex
	// open is by the handle's bytes.
	// +checklocks:mu
	open map[string]*mapping
}

// mapping is one handle that is open.
type mapping struct {
	handle []byte
	at     address
	// users counts the memories that are parts of it. imports.mu guards it.
	users int
}

// ExportKinds lists the one kind that there is.
func (s sharer) ExportKinds() []devices.HandleKind { return []devices.HandleKind{devices.HandleIPC} }

// AllocShared takes memory of its own that can be exported.
func (s sharer) AllocShared(ctx context.Context, n devices.Size, kind devices.HandleKind) (*devices.Memory, error) {
	if kind != devices.HandleIPC {
		return nil, fmt.Errorf("memory of %s for a %s handle: %w", s.d.info.Name, kind, devices.ErrUnsupported)
	}
	return s.d.allocate(ctx, n, true)
}

// Export names the memory. The name ends with the memory.
func (s sharer) Export(ctx context.Context, m *devices.Memory) (devices.Handle, error) {
	d := s.d
	leave, err := d.life.Begin(ctx, d.self, m.All(), int(m.Size()))
	if err != nil {
		return devices.Handle{}, err
	}
	defer leave()
	b := m.Handle().(*block) //nolint:errcheck // each memory of this package has one
	if !b.shared {
		return devices.Handle{}, fmt.Errorf("memory of %s was not allocated to be exported: %w", d.info.Name, devices.ErrUnsupported)
	}
	name, err := d.nameOf(b)
	if err != nil {
		return devices.Handle{}, fmt.Errorf("export memory of %s: %w", d.info.Name, err)
	}
	return devices.Handle{
		Kind: devices.HandleIPC, Device: d.info.UUID,
		Size: m.Size(), Allocation: b.size, Bytes: bytes.Clone(name),
	}, nil
}

// nameOf exports a block, once.
func (d *device) nameOf(b *block) ([]byte, error) {
	d.imports.mu.Lock() // two exports at once would make two names
	defer d.imports.mu.Unlock()
	d.mu.Lock()
	name := b.name
	d.mu.Unlock()
	if name != nil {
		return name, nil
	}
	err := d.on(func() (err error) {
		name, err = d.t.ipc.export(b.at, uint64(b.size))
		return err
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	b.name = name
	d.mu.Unlock()
	return name, nil
}

// Import opens memory of another process on this machine and this card.
func (s sharer) Import(ctx context.Context, h devices.Handle) (*devices.Memory, error) {
	d := s.d
	if h.Kind != devices.HandleIPC {
		return nil, fmt.Errorf("open a %s handle on %s: %w", h.Kind, d.info.Name, devices.ErrUnsupported)
	}
	if err := d.checkHandle(h); err != nil {
		return nil, fmt.Errorf("open a handle on %s: %w: %w", d.info.Name, err, devices.ErrHandle)
	}
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	epoch := d.Epoch()
	if err = d.failed(); err != nil {
		return nil, err
	}
	m, err := d.openHandle(h)
	if err != nil {
		return nil, fmt.Errorf("open a handle on %s: %w", d.info.Name, err)
	}
	b := &block{at: m.at + address(h.Offset), size: h.Size, from: m}
	return devices.NewMemory(devices.MemorySpec{
		Device: d.self, Size: h.Size, Epoch: epoch, Handle: b,
		Free: func() error {
			d.life.RLock()
			defer d.life.RUnlock()
			return d.closeHandle(m)
		},
	}), nil
}

// checkHandle says what is wrong with a handle on its face.
func (d *device) checkHandle(h devices.Handle) error {
	if err := d.info.CheckUUID(h.Device); err != nil {
		return err
	}
	part := devices.Range{Off: h.Offset, Len: h.Size}
	switch {
	case len(h.Bytes) != d.t.ipc.size:
		return fmt.Errorf("it has %d bytes, %s makes %d", len(h.Bytes), d.info.Family, d.t.ipc.size)
	case h.Size == 0 || !part.WellFormed():
		return fmt.Errorf("its part %v is none", part)
	case h.Allocation == 0 && d.t.ipc.extent == nil:
		return errors.New(`the runtime does not tell how long the allocation is, so the handle must: "allocation" is missing`)
	case h.Allocation != 0 && !part.Within(h.Allocation):
		return fmt.Errorf("its part %v lies outside of %d bytes", part, uint64(h.Allocation))
	}
	return nil
}

// openHandle maps the allocation that a handle names, or adds a user to its
// mapping.
func (d *device) openHandle(h devices.Handle) (*mapping, error) {
	d.imports.mu.Lock()
	defer d.imports.mu.Unlock()
	m, is := d.imports.open[string(h.Bytes)]
	if !is {
		m = &mapping{handle: bytes.Clone(h.Bytes)}
		err := d.on(func() (err error) {
			m.at, err = d.t.ipc.open(m.handle)
			return err
		})
		switch {
		case err == nil:
		case d.failed() != nil || isCode(err, d.t.codes.outOfMemory...):
			return nil, err
		default:
			return nil, fmt.Errorf("%w: %w", err, devices.ErrHandle)
		}
	}
	if err := d.checkExtent(m, h); err != nil {
		if !is {
			err = errors.Join(err, d.endMapping(m))
		}
		return nil, err
	}
	m.users++
	d.imports.open[string(h.Bytes)] = m
	return m, nil
}

// checkExtent compares the part that is meant with what was really mapped.
func (d *device) checkExtent(m *mapping, h devices.Handle) error {
	if d.t.ipc.extent == nil {
		return nil
	}
	var n uint64
	err := d.on(func() (err error) {
		n, err = d.t.ipc.extent(m.at)
		return err
	})
	if err != nil {
		return err
	}
	if part := (devices.Range{Off: h.Offset, Len: h.Size}); !part.Within(devices.Size(n)) {
		return fmt.Errorf("its part %v lies outside of the %d bytes that it names: %w", part, n, devices.ErrHandle)
	}
	return nil
}

func (d *device) endMapping(m *mapping) error {
	return d.on(func() error { return d.t.ipc.close(m.handle, m.at) })
}

// closeHandle drops a user of a mapping, and ends it with the last.
func (d *device) closeHandle(m *mapping) error {
	d.imports.mu.Lock()
	defer d.imports.mu.Unlock()
	m.users--
	if m.users > 0 || d.imports.open[string(m.handle)] != m {
		return nil
	}
	delete(d.imports.open, string(m.handle))
	if d.failed() != nil {
		return nil
	}
	return d.endMapping(m)
}

// closeImports ends all mappings of a device that is being closed.
func (d *device) closeImports() error {
	d.imports.mu.Lock()
	defer d.imports.mu.Unlock()
	var errs []error
	for _, m := range d.imports.open {
		errs = append(errs, d.endMapping(m))
	}
	clear(d.imports.open)
	return errors.Join(errs...)
}
