package cuda

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// pinned is host memory that copies go from and to without a detour.
type pinned struct {
	// bytes keeps Go's memory, if it is that, where it is.
	bytes []byte
	users int
	// ours says that this device has registered it, and has to end that.
	ours bool
}

func (p *pinned) begin() uintptr { return hostAddress(p.bytes) }
func (p *pinned) end() uintptr   { return p.begin() + uintptr(len(p.bytes)) }

// pins are the pinned ranges of a device, in the order of their addresses; no
// two overlap.
type pins struct {
	mu sync.RWMutex
	// +checklocks:mu
	ranges []*pinned
}

// find returns the range that begins at or before an address, nil if there is
// none, and where the next one is.
//
// +checklocksread:p.mu
func (p *pins) find(at uintptr) (*pinned, int) {
	i, _ := slices.BinarySearchFunc(p.ranges, at, func(r *pinned, at uintptr) int {
		if r.begin() <= at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return nil, 0
	}
	return p.ranges[i-1], i
}

// covers says whether all of b, which is not empty, is pinned.
func (p *pins) covers(b []byte) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	at := hostAddress(b)
	r, _ := p.find(at)
	return r != nil && at+uintptr(len(b)) <= r.end()
}

// use adds a user to a range that is pinned already, as it is.
func (p *pins) use(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, _ := p.find(hostAddress(b))
	if r == nil || r.begin() != hostAddress(b) || len(r.bytes) != len(b) {
		return false
	}
	r.users++
	return true
}

// add notes a range with its first user; false if it overlaps with another.
func (p *pins) add(b []byte, ours bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &pinned{bytes: b, users: 1, ours: ours}
	before, i := p.find(n.begin())
	if before != nil && before.end() > n.begin() || i < len(p.ranges) && p.ranges[i].begin() < n.end() {
		return false
	}
	p.ranges = slices.Insert(p.ranges, i, n)
	return true
}

// drop ends a use. It returns true with the last one of a range that this
// device has to unregister.
func (p *pins) drop(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, i := p.find(hostAddress(b))
	if r == nil || r.begin() != hostAddress(b) {
		return false
	}
	if r.users--; r.users > 0 {
		return false
	}
	p.ranges = slices.Delete(p.ranges, i-1, i)
	return r.ours
}

// clear unregisters all, with the device's context.
func (p *pins) clear(a *api) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, r := range p.ranges {
		if r.ours {
			errs = append(errs, a.hostUnregister(r.bytes))
		}
	}
	p.ranges = nil
	return errors.Join(errs...)
}

// PinHost registers p with the driver, for all cards. p should not be Go's
// memory, which the collector may give to others once unpin was called, and
// stays registered in whole pages. What another device of this process has
// registered is used as it is. Close unpins what is left.
func (d *device) PinHost(p []byte) (unpin func(), err error) {
	leave, err := d.life.Enter(context.Background(), d)
	if err != nil {
		return nil, err
	}
	defer leave()
	if len(p) == 0 {
		return func() {}, nil
	}
	if d.pins.use(p) {
		return d.unpinner(p), nil
	}
	err = d.on(func() error { return d.api.hostRegister(p) })
	ours := err == nil
	if err != nil && codeOf(err) != codeAlreadyRegistered {
		return nil, err
	}
	if d.pins.add(p, ours) {
		return d.unpinner(p), nil
	}
	if ours {
		err = d.on(func() error { return d.api.hostUnregister(p) })
		return func() {}, err
	}
	return func() {}, nil // a part of what is pinned
}

// unpinner ends one use of a pinned range, once.
func (d *device) unpinner(p []byte) func() {
	return sync.OnceFunc(func() {
		d.life.RLock()
		defer d.life.RUnlock()
		if d.pins.drop(p) && d.failed() == nil {
			d.warn("host memory not unpinned", d.on(func() error { return d.api.hostUnregister(p) }))
		}
	})
}
