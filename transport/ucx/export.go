package ucx

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Export prepares host memory for the peer. Device memory is
// devices.ErrUnsupported: this side would have to copy the peer's data from a
// slot into the device, which the data connections do already.
func (p *Provider) Export(b *region.Buffer, rights wire.Rights) (window.Export, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := b.Hold(); err != nil {
		return nil, err
	}
	e := &export{p: p, buffer: b, rights: rights, free: make(chan struct{})}
	if err := e.open(); err != nil {
		b.Drop()
		return nil, err
	}
	return e, nil
}

// export implements window.Export.
type export struct {
	p      *Provider
	buffer *region.Buffer
	rights wire.Rights
	blob   []byte
	// mapping is nil if this side accesses the memory for the peer.
	mapping *mapping
	id      uint64
	// uses is the number of messages that are being served; free is closed when
	// an export is closed and has no uses. Both are guarded by Provider.mu.
	uses   int
	closed bool
	free   chan struct{}
}

// open registers the memory, or names it.
func (e *export) open() (err error) {
	host := e.buffer.Host(0, e.buffer.Size())
	if host == nil {
		return fmt.Errorf("transport ucx: can't access device memory of %s: %w", e.buffer.Device(), devices.ErrUnsupported)
	}
	if !e.p.ctx.direct() {
		return e.name()
	}
	if e.mapping, err = e.p.ctx.acquire(host, e.rights); err != nil {
		return fmt.Errorf("transport ucx: %w", err)
	}
	e.blob, err = memoryOffer{start: region.Address(host), size: uint64(len(host)), key: e.mapping.key}.encode(kindMemory)
	if err != nil {
		return errors.Join(fmt.Errorf("transport ucx: %w", err), e.p.ctx.release(e.mapping))
	}
	return nil
}

// name assigns the memory a random name.
func (e *export) name() (err error) {
	e.id = wire.Random()
	if e.blob, err = (memoryOffer{start: e.id, size: uint64(e.buffer.Size())}).encode(kindWindow); err != nil {
		return err
	}
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.p.exports[e.id] != nil {
		return errors.New("transport ucx: random memory name is already in use")
	}
	e.p.exports[e.id] = e
	return nil
}

// Offer returns the address of the memory, or its name.
func (e *export) Offer() window.Offer { return window.Offer{Blob: e.blob} }

// Close ends the registration with its last export. It waits for the peer's
// operations in progress, as long as the provider runs.
func (e *export) Close() (err error) {
	if e.mapping != nil {
		err = e.p.ctx.release(e.mapping)
	} else {
		e.p.mu.Lock()
		delete(e.p.exports, e.id)
		if e.closed = true; e.uses == 0 {
			close(e.free)
		}
		e.p.mu.Unlock()
		<-e.free
	}
	e.buffer.Drop()
	return err
}

// use checks a request of the peer, and holds the export.
func (p *Provider) use(id uint64, need wire.Rights, off, n uint64) (*export, wire.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.exports[id]
	switch {
	case e == nil:
		return nil, wire.StatusKey
	case !e.rights.Allows(need):
		return nil, wire.StatusRights
	case n == 0 || e.buffer.Check(devices.Offset(off), devices.Size(n)) != nil:
		return nil, wire.StatusRange
	}
	e.uses++
	return e, wire.StatusOK
}

// unuse ends a use.
func (p *Provider) unuse(e *export) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.uses--; e.uses == 0 && e.closed {
		close(e.free)
	}
}

// Import opens memory of the peer.
//
// Errors: ErrOffer for an offer that this package has not made.
func (p *Provider) Import(o window.Offer, size devices.Size, _ wire.Rights) (window.Window, error) {
	if err := closeFiles(o); err != nil {
		return nil, err
	}
	kind := byte(kindWindow)
	if p.ctx.direct() {
		kind = kindMemory
	}
	m, err := decodeMemory(kind, o.Blob)
	if err == nil && m.size != uint64(size) {
		err = fmt.Errorf("%w: memory of %d bytes for a key of %d", ErrOffer, m.size, uint64(size))
	}
	if err != nil {
		return nil, fmt.Errorf("open memory of the peer: %w", err)
	}
	w := &remote{p: p, start: m.start}
	if !p.ctx.direct() {
		w.start, w.window = 0, m.start
		return w, nil
	}
	padded := append(append([]byte(nil), m.key...), make([]byte, keyPadding)...)
	err = p.do(func() error {
		if p.endpoint == 0 {
			return errors.New("not connected")
		}
		w.key, err = p.api.unpackKey(p.endpoint, padded)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrOffer, err)
		}
		p.keys[w.key] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("transport ucx: open memory of the peer: %w", err)
	}
	return w, nil
}
