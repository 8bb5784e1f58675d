package card

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
)

// Sharing contains the calls by which a family shares memory with other processes. They are
// made on a thread that is bound to the card, except Unit, Clear and Check.
type Sharing interface {
	// Unit returns the allocation unit, in bytes, of memory that can be exported as kind; 0
	// if the card can neither export nor open that kind.
	Unit(kind devices.HandleKind) devices.Size
	// TakeShared allocates n bytes, a multiple of the kind's unit.
	TakeShared(n devices.Size, kind devices.HandleKind) (*Block, error)
	// Clear sets the bytes of a block from off on to 0.
	Clear(ctx context.Context, b *Block, off devices.Size) error
	// Name fills in the fields by which another process opens a block of TakeShared.
	Name(b *Block, h *devices.Handle) error
	// Check returns an ErrHandle for a handle that is recognizably invalid without a call
	// to the runtime. Its kind, device and part have been checked already.
	Check(h devices.Handle) error
	// Open opens the part of the allocation that a handle identifies.
	Open(h devices.Handle) (*Block, error)
}

// Sharer implements devices.Exporter and devices.Importer for a card.
type Sharer struct {
	card *Card
	by   Sharing
}

var (
	_ devices.Exporter = Sharer{}
	_ devices.Importer = Sharer{}
)

// NewSharer returns the Sharer of a card.
func NewSharer(c *Card, by Sharing) Sharer { return Sharer{card: c, by: by} }

// ExportKinds lists the kinds that the card supports. IPC is first, because PyTorch and
// CuPy open that kind.
func (s Sharer) ExportKinds() []devices.HandleKind {
	kinds := []devices.HandleKind{devices.HandleIPC, devices.HandleVMM}
	return slices.DeleteFunc(kinds, func(kind devices.HandleKind) bool { return s.by.Unit(kind) == 0 })
}

// AllocShared allocates memory that can be exported as kind, in whole units of the kind.
func (s Sharer) AllocShared(ctx context.Context, n devices.Size, kind devices.HandleKind) (*devices.Memory, error) {
	unit := s.by.Unit(kind)
	if unit == 0 {
		return nil, fmt.Errorf("export memory of %s as %s: %w", s.card.spec.Info.Name, kind, devices.ErrUnsupported)
	}
	take := func(whole devices.Size) (*Block, error) { return s.by.TakeShared(whole, kind) }
	// The process that opens the handle sees the whole unit, and must not see earlier
	// content of the memory.
	finish := func(b *Block) error {
		if b.Size == n {
			return nil
		}
		return s.by.Clear(ctx, b, n)
	}
	return s.card.Take(ctx, n, RoundUp(n, unit), take, finish)
}

// Export returns a handle for a memory of AllocShared.
func (s Sharer) Export(ctx context.Context, m *devices.Memory) (devices.Handle, error) {
	c := s.card
	leave, err := c.Begin(ctx, m.All(), int(m.Size()))
	if err != nil {
		return devices.Handle{}, err
	}
	defer leave()
	b := BlockOf(m.All())
	h := devices.Handle{Kind: b.Kind, Device: c.spec.Info.UUID, Size: m.Size()}
	err = c.On(func() error {
		if b.Kind == "" {
			return fmt.Errorf("memory of %s that was not allocated to be exported: %w", c.spec.Info.Name, devices.ErrUnsupported)
		}
		return s.by.Name(b, &h)
	})
	if err != nil {
		return devices.Handle{}, fmt.Errorf("export %v of %s: %w", m.Size(), c.spec.Info.Name, err)
	}
	return h, nil
}

// Import opens memory of another process.
func (s Sharer) Import(ctx context.Context, h devices.Handle) (*devices.Memory, error) {
	c := s.card
	if err := s.check(h); err != nil {
		return nil, fmt.Errorf("open a %s handle on %s: %w", h.Kind, c.spec.Info.Name, err)
	}
	leave, err := c.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	epoch := c.Epoch()
	var b *Block
	err = c.On(func() (err error) {
		b, err = s.by.Open(h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a %s handle on %s: %w", h.Kind, c.spec.Info.Name, err)
	}
	return c.memory(b, h.Size, epoch), nil
}

// check rejects handles that are invalid without a call to the runtime.
func (s Sharer) check(h devices.Handle) error {
	if s.by.Unit(h.Kind) == 0 {
		return devices.ErrUnsupported
	}
	if err := s.card.spec.Info.CheckUUID(h.Device); err != nil {
		return err
	}
	part := devices.Range{Off: h.Offset, Len: h.Size}
	switch {
	case h.Size == 0:
		return fmt.Errorf("the handle covers no bytes: %w", devices.ErrHandle)
	case h.Allocation != 0 && !part.Within(h.Allocation):
		return Outside(part, h.Allocation)
	}
	return s.by.Check(h)
}

// Outside returns an ErrHandle for a part that is outside of an allocation.
func Outside(part devices.Range, whole devices.Size) error {
	return fmt.Errorf("%v is outside the allocation of %d bytes: %w", part, uint64(whole), devices.ErrHandle)
}

// Exported returns the handle of a block, created by export at the first call: a second
// export would create another handle. export also returns unname if the handle must be
// revoked before the memory is freed. The caller owns the returned copy.
func (c *Card) Exported(b *Block, export func() (handle []byte, unname func() error, err error)) ([]byte, error) {
	c.handleMu.Lock()
	defer c.handleMu.Unlock()
	if b.handle != nil {
		return bytes.Clone(b.handle), nil
	}
	handle, unname, err := export()
	if err != nil {
		return nil, err
	}
	b.handle, b.unname = handle, unname
	c.named[string(handle)] = struct{}{}
	return bytes.Clone(handle), nil
}

// Foreign is memory of another process that a runtime has opened.
type Foreign struct {
	Addr Address
	// Size is the number of bytes at Addr, 0 if the runtime does not report it.
	Size devices.Size
	// Close closes the memory, on a thread that is bound to the card.
	Close func() error
}

// opened is an open handle.
type opened struct {
	Foreign
	// users counts the blocks that are parts of it. Card.handleMu guards it.
	users int
}

// OpenOnce returns the part that a handle identifies as a block. open opens the handle
// unless it is open already; it is closed with the last block. own reports to open that the
// handle is one of the card's own memory.
func (c *Card) OpenOnce(h devices.Handle, open func(own bool) (Foreign, error)) (*Block, error) {
	key := string(h.Bytes)
	c.handleMu.Lock()
	defer c.handleMu.Unlock()
	o := c.opened[key]
	if o == nil {
		_, own := c.named[key]
		f, err := open(own)
		if err != nil {
			return nil, err
		}
		o = &opened{Foreign: f}
		c.opened[key] = o
	}
	o.users++
	if part := (devices.Range{Off: h.Offset, Len: h.Size}); o.Size != 0 && !part.Within(o.Size) {
		return nil, errors.Join(Outside(part, o.Size), c.leaveHandle(key, o))
	}
	return &Block{
		Addr: o.Addr.At(devices.Size(h.Offset)),
		Size: h.Size,
		Give: func() error {
			c.handleMu.Lock()
			defer c.handleMu.Unlock()
			return c.leaveHandle(key, o)
		},
	}, nil
}

// leaveHandle ends one use of an open handle.
//
// +checklocks:c.handleMu
func (c *Card) leaveHandle(key string, o *opened) error {
	if o.users--; o.users > 0 {
		return nil
	}
	delete(c.opened, key)
	return o.Close()
}
