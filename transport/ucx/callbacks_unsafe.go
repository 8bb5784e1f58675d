package ucx

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// callbacks brings what the library reports, while a worker makes progress, to
// the worker's provider.
type callbacks struct {
	// onFailure and onMessage are addresses for C.
	onFailure uintptr
	onMessage uintptr

	mu sync.Mutex
	// +checklocks:mu
	last uintptr
	// +checklocks:mu
	providers map[uintptr]*Provider
}

// init makes the addresses. It is called once.
func (c *callbacks) init() {
	c.onFailure = purego.NewCallback(func(id, _, status uintptr) {
		if p := c.find(id); p != nil && p.failure == statusOK {
			p.failure = statusOf(status)
		}
	})
	c.onMessage = purego.NewCallback(func(id, head, headSize, data, size, param uintptr) uintptr {
		p := c.find(id)
		if p == nil {
			return uintptr(statusOK)
		}
		// The detour by a pointer's own bits is what tells vet and checkptr that
		// the address is not one of Go's heap.
		attributes := (*(**messageParam)(unsafe.Pointer(&param))).attributes
		return uintptr(p.message(dl.Bytes(head, int(headSize)), data, size, attributes&amRendezvous != 0))
	})
}

// add gives a provider an id.
func (c *callbacks) add(p *Provider) uintptr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.providers == nil {
		c.providers = map[uintptr]*Provider{}
	}
	c.last++
	c.providers[c.last] = p
	return c.last
}

func (c *callbacks) find(id uintptr) *Provider {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.providers[id]
}

// forget ends an add.
func (c *callbacks) forget(id uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.providers, id)
}
