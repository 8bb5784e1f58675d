package ucx

import (
	"github.com/hmcfs/hmcfs/transport/window"
)

// remote is a buffer of the peer: a window.Window.
type remote struct {
	p     *Provider
	start uint64
	key   remoteKey
	// window is its name, if it is accessed by messages.
	window uint64
}

// Start passes host memory to the worker; device memory goes through slots.
func (w *remote) Start(o *window.Op, done window.Completer) {
	from := op{kind: o.Kind, at: w.start + o.RemoteOff, key: w.key, window: w.window, done: done}
	if mem := o.Local.Host(o.LocalOff, o.Size); mem != nil {
		from.mem = mem
		w.p.submit(from)
		return
	}
	w.p.stage(o, from)
}

// Close releases the library's key, unless the provider's end has done that.
func (w *remote) Close() error {
	if w.key == 0 {
		return nil
	}
	// After the provider's end there is nothing to release.
	_ = w.p.do(func() error {
		delete(w.p.keys, w.key)
		w.p.api.RkeyDestroy.Call(uintptr(w.key))
		return nil
	})
	return nil
}
