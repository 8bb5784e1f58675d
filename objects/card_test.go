package objects_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects/share"
)

// driver is a vendor's driver as two processes see it: the bytes of a handle that one
// has exported can be opened by the other.
type driver struct {
	mu sync.Mutex
	// +checklocks:mu
	exported map[string]*devices.Memory
	// opened counts what is open and not closed yet.
	// +checklocks:mu
	opened map[string]int
}

func newDriver() *driver {
	return &driver{exported: map[string]*devices.Memory{}, opened: map[string]int{}}
}

func (d *driver) opens(handle string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened[handle]
}

// card is a device whose memory is exported as opaque bytes, as with CUDA. Its memory
// is that of a simulated device.
type card struct {
	inner  devices.Device
	driver *driver
	uuid   string
	name   devices.Name
	// reading, when set, is called in every copy to the host.
	reading func()
}

func newCard(d *driver, name devices.Name) *card {
	return &card{inner: sim.New(7, sim.Params{Size: 32 * devices.MiB}), driver: d, uuid: "CARD-" + string(name), name: name}
}

func (c *card) Info() devices.Info {
	info := c.inner.Info()
	info.Name, info.Family, info.UUID = c.name, "card", c.uuid
	return info
}

func (c *card) Epoch() devices.Epoch          { return c.inner.Epoch() }
func (c *card) Usage() (devices.Usage, error) { return c.inner.Usage() }
func (c *card) Close() error                  { return c.inner.Close() }

func (c *card) own(m *devices.Memory) *devices.Memory {
	return devices.NewMemory(devices.MemorySpec{Device: c, Size: m.Size(), Epoch: m.Epoch(), Handle: m, Free: m.Release})
}

func (c *card) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	m, err := c.inner.Alloc(ctx, n)
	if err != nil {
		return nil, err
	}
	return c.own(m), nil
}

// span is the part of the inner device's memory.
func (c *card) span(s devices.Span) (devices.Span, error) {
	if err := s.Check(c); err != nil {
		return devices.Span{}, err
	}
	return devices.Span{Mem: s.Mem.Handle().(*devices.Memory), Range: s.Range}, nil //nolint:errcheck,forcetypeassert // card puts only this type there
}

func (c *card) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	s, err := c.span(dst)
	if err != nil {
		return err
	}
	return s.Mem.Device().CopyIn(ctx, s, src)
}

func (c *card) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	s, err := c.span(src)
	if err != nil {
		return err
	}
	if c.reading != nil {
		c.reading()
	}
	return s.Mem.Device().CopyOut(ctx, dst, s)
}

func (c *card) Copy(ctx context.Context, dst, src devices.Span) error {
	p := make([]byte, src.Len)
	if err := c.CopyOut(ctx, p, src); err != nil {
		return err
	}
	return c.CopyIn(ctx, dst, p)
}

func (c *card) Fill(ctx context.Context, dst devices.Span, value byte) error {
	s, err := c.span(dst)
	if err != nil {
		return err
	}
	return s.Mem.Device().Fill(ctx, s, value)
}

func (c *card) ExportKinds() []devices.HandleKind { return []devices.HandleKind{devices.HandleIPC} }

// AllocShared fills the memory with bytes of earlier users.
func (c *card) AllocShared(ctx context.Context, n devices.Size, kind devices.HandleKind) (*devices.Memory, error) {
	if kind != devices.HandleIPC {
		return nil, fmt.Errorf("as %s: %w", kind, devices.ErrUnsupported)
	}
	const granule = 1 << 20
	m, err := c.Alloc(ctx, (n+granule-1)/granule*granule)
	if err != nil {
		return nil, err
	}
	return m, c.Fill(ctx, m.All(), 0xdb)
}

func (c *card) Export(_ context.Context, m *devices.Memory) (devices.Handle, error) {
	handle := fmt.Sprintf("%p", m)
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	c.driver.exported[handle] = m
	return devices.Handle{Kind: devices.HandleIPC, Device: c.uuid, Bytes: []byte(handle), Size: m.Size(), Allocation: m.Size()}, nil
}

// Import opens a part of an exported memory; closing it frees nothing.
func (c *card) Import(_ context.Context, h devices.Handle) (*devices.Memory, error) {
	handle := string(h.Bytes)
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	m := c.driver.exported[handle]
	r := devices.Range{Off: h.Offset, Len: h.Size}
	if m == nil || !r.Within(m.Size()) {
		return nil, fmt.Errorf("open %q, %v: %w", handle, r, devices.ErrHandle)
	}
	c.driver.opened[handle]++
	return devices.NewMemory(devices.MemorySpec{
		Device: window{c, m, h.Offset}, Size: h.Size, Epoch: c.Epoch(),
		Free: func() error {
			c.driver.mu.Lock()
			defer c.driver.mu.Unlock()
			c.driver.opened[handle]--
			return nil
		},
	}), nil
}

// window is the device of an imported part of a memory.
type window struct {
	*card
	mem *devices.Memory
	off devices.Offset
}

func (w window) whole(s devices.Span) devices.Span {
	s.Mem, s.Off = w.mem, s.Off+w.off
	return s
}

func (w window) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return w.mem.Device().CopyIn(ctx, w.whole(dst), src)
}

func (w window) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	if w.reading != nil {
		w.reading()
	}
	return w.mem.Device().CopyOut(ctx, dst, w.whole(src))
}

func (w window) Fill(ctx context.Context, dst devices.Span, value byte) error {
	return w.mem.Device().Fill(ctx, w.whole(dst), value)
}

// piecesOf names parts of one exported memory.
func piecesOf(h devices.Handle, pid int, parts ...devices.Range) share.Memory {
	m := share.Memory{Family: "card", Device: h.Device, PID: pid}
	for _, r := range parts {
		m.Size += r.Len
		m.Pieces = append(m.Pieces, share.Piece{
			Kind: h.Kind, Handle: fmt.Sprintf("%x", h.Bytes), Offset: r.Off, Size: r.Len, Allocation: h.Allocation,
		})
	}
	return m
}
