package opencl

import (
	"context"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// buffer is one OpenCL buffer object and its users. doc.go shows its states.
type buffer struct {
	mem  memID
	size devices.Size
	own  []byte // the memory itself if this package allocated it, otherwise nil

	// use is guarded by the mu of its device's gate. An annotation can only name a lock of
	// the same object; only the methods of gate access it.
	use usage

	// mapMu is held while the buffer is mapped or unmapped.
	mapMu sync.Mutex
	// addr is the host address of the buffer, 0 while it is not mapped.
	// +checklocks:mapMu
	addr uintptr
}

// usage counts the current users of a buffer. hosts and commands are never both above 0.
type usage struct {
	hosts    int           // views held, and copies that the host makes
	commands int           // commands that the device is executing
	waiting  int           // host users that wait for commands to end
	changed  chan struct{} // closed when commands falls to 0; nil with no waiter
	retired  bool          // to be destroyed by its last user
}

func (u *usage) idle() bool { return u.hosts == 0 && u.commands == 0 }

// gate decides for the buffers of one device whether the host or the device may use them. A
// buffer may be passed twice in one call.
type gate struct {
	mu sync.Mutex
}

// each calls fn for each distinct buffer.
func each(bufs []*buffer, fn func(*buffer)) {
	for i, b := range bufs {
		if i == 0 || b != bufs[0] {
			fn(b)
		}
	}
}

// enterHost makes the caller a host user of the buffers, all or none. It waits only for the
// device's commands in flight: no new command starts on a buffer that a host user waits
// for. The only possible error is the context's.
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

// busyLocked returns a channel that is closed when the first busy buffer has no more
// commands, nil if no buffer has any.
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

// tryCommand makes the caller a device user of the buffers, all or none. It returns false,
// without waiting, while the host uses one or waits for one.
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

// leaveHost undoes enterHost and returns the buffers that the caller has to destroy.
func (g *gate) leaveHost(bufs ...*buffer) (last []*buffer) {
	return g.leave(bufs, func(u *usage) { u.hosts-- })
}

// leaveCommand undoes tryCommand and returns the buffers that the caller has to destroy.
func (g *gate) leaveCommand(bufs ...*buffer) (last []*buffer) {
	return g.leave(bufs, func(u *usage) {
		u.commands--
		if u.commands == 0 && u.changed != nil {
			close(u.changed)
			u.changed = nil
		}
	})
}

// leave calls end, which ends a use, for each buffer.
func (g *gate) leave(bufs []*buffer, end func(*usage)) (last []*buffer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	each(bufs, func(b *buffer) {
		end(&b.use)
		if b.use.retired && b.use.idle() {
			last = append(last, b)
		}
	})
	return last
}

// retire marks the buffer as no longer needed, and reports whether the caller has to
// destroy it now. Otherwise its last user will, or it was retired before.
func (g *gate) retire(b *buffer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.use.retired {
		return false
	}
	b.use.retired = true
	return b.use.idle()
}
