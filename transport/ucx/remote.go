package ucx

import (
	"github.com/hmcfs/hmcfs/transport/window"
)

// remote is a peer's buffer: a window.Window.
type remote struct {
	p     *Provider
	start uint64
	key   remoteKey
	// window is the name of it, where it is reached by messages.
	window uint64
}

// Start gives host memory to the worker; device memory goes through slots.
func (w *remote) Start(o *window.Op, done window.Completer) {
	from := op{kind: o.Kind, at: w.start + o.RemoteOff, key: w.key, window: w.window, done: done}
	if mem := o.Local.Host(o.LocalOff, o.Size); mem != nil {
		from.mem = mem
		w.p.submit(from)
		return
	}
	w.p.stage(o, from)
}

// Close gives the library's key back; the provider's end has done that.
func (w *remote) Close() error {
	if w.key == 0 {
		return nil
	}
	// After the provider's end there is nothing to give back.
	_ = w.p.do(func() error {
		delete(w.p.keys, w.key)
		w.p.api.RkeyDestroy.Call(uintptr(w.key))
		return nil
	})
	return nil
}
