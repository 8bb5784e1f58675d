package ucx

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// callbackTable holds the addresses of the functions that the library calls while
// a worker makes progress. The user data of each call is the worker's provider.
type callbackTable struct {
	onFailure, onMessage uintptr
}

// callbacks returns the addresses. A process can create a limited number of them,
// and none is ever freed.
//
//nolint:gochecknoglobals // addresses of stateless functions, which last as long as the process
var callbacks = sync.OnceValue(newCallbackTable)

func newCallbackTable() callbackTable {
	return callbackTable{
		onFailure: purego.NewCallback(func(user, _, status uintptr) {
			if p := providerOf(user); !p.detached && p.failure == statusOK {
				p.failure = statusOf(status)
			}
		}),
		onMessage: purego.NewCallback(func(user, head, headSize, data, size, param uintptr) uintptr {
			p := providerOf(user)
			if p.detached {
				return uintptr(statusOK)
			}
			// Reinterpreting the pointer's own bits shows vet and checkptr that
			// the address is not in Go's heap.
			attributes := (*(**messageParam)(unsafe.Pointer(&param))).attributes
			return uintptr(p.message(dl.Bytes(head, int(headSize)), data, size, attributes&amRendezvous != 0))
		}),
	}
}

// attach pins the provider, so that the library may hold its address as user data.
func (p *Provider) attach() {
	p.pin.Pin(p)
	p.user = uintptr(unsafe.Pointer(p))
}

// providerOf converts user data of the library back to the provider, which is pinned.
func providerOf(user uintptr) *Provider {
	return *(**Provider)(unsafe.Pointer(&user))
}

// destroyWorkerLocked destroys the worker, and ignores the library's reports
// meanwhile.
//
// +checklocks:p.ctx.mu
func (p *Provider) destroyWorkerLocked() {
	p.detached = true
	p.api.WorkerDestroy.Call(uintptr(p.worker))
	p.pin.Unpin()
}
