package opencl

import (
	"context"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// buffer is one OpenCL buffer object and who uses it. doc.go draws its
// states.
type buffer struct {
	mem  memID
	size devices.Size
	own  []byte // the memory itself where it is ours, else nil

	// use is guarded by the mu of its device's gate. An annotation can name a
	// lock of the same object only; the methods of gate are all that touches it.
	use usage

	// mapMu is held while the map is made or ended.
	mapMu sync.Mutex
	// addr is the address at which the host sees the buffer, 0 while it is not mapped.
	// +checklocks:mapMu
	addr uintptr
}

// usage counts the present users of a buffer. hosts and commands are never
// both above 0.
type usage struct {
	hosts    int           // views held, and copies that the host makes
	commands int           // commands that the device works on
	waiting  int           // host users that wait for commands to end
	changed  chan struct{} // closed when commands falls to 0; nil with no waiter
	retired  bool          // to be destroyed by its last user
}

func (u *usage) idle() bool { return u.hosts == 0 && u.commands == 0 }

// gate decides for the buffers of one device whether the host or the device
// uses them now. A buffer may be named twice in one call.
type gate struct {
	mu sync.Mutex
}

// each calls fn for each of the buffers once.
func each(bufs []*buffer, fn func(*buffer)) {
	for i, b := range bufs {
		if i == 0 || b != bufs[0] {
			fn(b)
		}
	}
}

// enterHost makes the caller a host user of the buffers, all or none. It
// waits for the device's commands that are in flight, and for nothing else:
// no new command begins on a buffer that a host user waits for. It fails
// with the context's error only.
func (g *gate) enterHost(ctx context.Context, bufs ...*buffer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		changed := g.busyLocked(bufs)
		if changed == nil {
			each(bufs, func(b *buffer) { b.use.hosts++ })
			return nil
		}
		each(bufs, func(b *buffer) { b.use.waiting++ })
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
		each(bufs, func(b *buffer) { b.use.waiting-- })
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// busyLocked returns what is closed when the first buffer that the device
// works on is done, nil if there is none.
//
// +checklocks:g.mu
func (g *gate) busyLocked(bufs []*buffer) chan struct{} {
	for _, b := range bufs {
		if b.use.commands > 0 {
			if b.use.changed == nil {
				b.use.changed = make(chan struct{})
			}
			return b.use.changed
		}
	}
	return nil
}

// tryCommand makes the caller a device user of the buffers, all or none. It
// says no, and does not wait, while the host uses one or waits for one.
func (g *gate) tryCommand(bufs ...*buffer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range bufs {
		if b.use.hosts > 0 || b.use.waiting > 0 {
			return false
		}
	}
	each(bufs, func(b *buffer) { b.use.commands++ })
	return true
}

// leaveHost ends what enterHost began and returns the buffers that the caller
// has to destroy.
func (g *gate) leaveHost(bufs ...*buffer) (last []*buffer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	each(bufs, func(b *buffer) {
		b.use.hosts--
		if b.use.retired && b.use.idle() {
			last = append(last, b)
		}
	})
	return last
}

// leaveCommand ends what tryCommand began and returns the buffers that the
// caller has to destroy.
func (g *gate) leaveCommand(bufs ...*buffer) (last []*buffer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	each(bufs, func(b *buffer) {
		b.use.commands--
		if b.use.commands == 0 && b.use.changed != nil {
			close(b.use.changed)
			b.use.changed = nil
		}
		if b.use.retired && b.use.idle() {
			last = append(last, b)
		}
	})
	return last
}

// retire marks the buffer as not wanted any more, and says whether the caller
// has to destroy it now. Otherwise its last user does, or somebody has.
func (g *gate) retire(b *buffer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.use.retired {
		return false
	}
	b.use.retired = true
	return b.use.idle()
}
