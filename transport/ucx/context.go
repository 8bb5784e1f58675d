package ucx

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Context is the library with one selection of transports, and the memory that is
// registered with it. It may be used from any goroutine, by any number of
// providers.
type Context struct {
	api    *api
	handle contextHandle
	opts   Options

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	maps []*mapping
	// +checklocks:mu
	stats Stats
}

// Stats counts a context's operations; Live is a gauge.
type Stats struct {
	// Registrations counts registrations of memory with the library.
	Registrations uint64 `json:"registrations"`
	// Reuses counts the times that memory was registered already.
	Reuses uint64 `json:"reuses"`
	// Live is the current number of registrations.
	Live uint64 `json:"live"`
}

// mapping is memory that is registered with the library: one for all exports
// inside it that grant the same rights.
type mapping struct {
	start, end uint64
	rights     wire.Rights
	handle     memoryHandle
	// key is unpacked by a peer.
	key []byte
	// refs is guarded by Context.mu.
	refs int
}

// direct reports whether the library puts and gets itself. Otherwise the two
// sides exchange messages, and each accesses only its own memory.
func (c *Context) direct() bool { return c.opts.direct() }

// kind returns the kind of an address: both sides must use the same.
func (c *Context) kind() byte {
	if c.direct() {
		return kindAddress
	}
	return kindTalk
}

// Stats returns a snapshot of the counters.
func (c *Context) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Close ends the context, and every remaining registration.
//
// Preconditions: its providers are closed.
func (c *Context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for _, m := range c.maps {
		errs = append(errs, c.unmapLocked(m))
	}
	c.maps = nil
	c.api.Cleanup.Call(uintptr(c.handle))
	return errors.Join(errs...)
}

// acquire finds the mapping that contains p, or makes one.
func (c *Context) acquire(p []byte, rights wire.Rights) (*mapping, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("ucx context: %w", devices.ErrClosed)
	}
	start := region.Address(p)
	end := start + uint64(len(p))
	for _, m := range c.maps {
		if m.start <= start && end <= m.end && m.rights == rights {
			m.refs++
			c.stats.Reuses++
			return m, nil
		}
	}
	handle, err := c.api.mapMemory(c.handle, p, protection(rights))
	if err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", len(p), err)
	}
	return c.addLocked(&mapping{start: start, end: end, rights: rights, handle: handle, refs: 1})
}

// addLocked completes a mapping and keeps it, or ends it on failure.
//
// +checklocks:c.mu
func (c *Context) addLocked(m *mapping) (*mapping, error) {
	c.stats.Registrations++
	c.stats.Live++
	key, err := c.api.packKey(c.handle, m.handle)
	if err != nil {
		return nil, errors.Join(err, c.unmapLocked(m))
	}
	m.key = key
	c.maps = append(c.maps, m)
	return m, nil
}

// release undoes an acquire.
func (c *Context) release(m *mapping) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.refs--; m.refs > 0 || c.closed {
		return nil
	}
	c.maps = slices.DeleteFunc(c.maps, func(other *mapping) bool { return other == m })
	return c.unmapLocked(m)
}

// +checklocks:c.mu
func (c *Context) unmapLocked(m *mapping) error {
	c.stats.Live--
	status := statusOf(c.api.MemUnmap.Call(uintptr(c.handle), uintptr(m.handle)))
	if err := c.api.check("ucp_mem_unmap", status); err != nil {
		return fmt.Errorf("deregister %d bytes: %w", m.end-m.start, err)
	}
	return nil
}

// protection returns the access that the rights grant a peer, for devices that
// check it.
func protection(r wire.Rights) uint32 {
	prot := uint32(protLocalRead | protLocalWrite)
	if r.Allows(wire.Readable) {
		prot |= protRemoteRead
	}
	if r.Allows(wire.Writable) {
		prot |= protRemoteWrite
	}
	return prot
}
