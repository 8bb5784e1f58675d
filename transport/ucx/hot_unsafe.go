package ucx

import (
	"unsafe"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// caller makes the calls of the data path. Their arguments are put together
// in memory that it keeps: those of dl.Func.Call itself are allocated by each
// call. One goroutine at a time may use it.
type caller struct {
	*api
	args [7]uintptr
	// param is that of every operation.
	param requestParam
	// large is that of messages that are fetched by who gets them.
	large requestParam
}

func newCaller(a *api) *caller {
	return &caller{
		api:   a,
		param: requestParam{opAttrMask: opMemoryType, memoryType: memoryHost},
		large: requestParam{opAttrMask: opMemoryType | opFlags, memoryType: memoryHost, flags: amSendRendezvous},
	}
}

func (c *caller) one(f dl.Func, arg uintptr) uintptr {
	c.args[0] = arg
	return f.Call(c.args[:1]...)
}

// put begins to write p at an address of the peer. p is not on a stack, and
// stays as it is until the request is complete.
func (c *caller) put(ep endpointHandle, p []byte, at uint64, k remoteKey) request {
	return c.move(c.Put, ep, p, at, k)
}

// get begins to fill p from an address of the peer, as put.
func (c *caller) get(ep endpointHandle, p []byte, at uint64, k remoteKey) request {
	return c.move(c.Get, ep, p, at, k)
}

func (c *caller) move(f dl.Func, ep endpointHandle, p []byte, at uint64, k remoteKey) request {
	c.args = [7]uintptr{
		uintptr(ep), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(at),
		uintptr(k), uintptr(unsafe.Pointer(&c.param)),
	}
	return request(f.Call(c.args[:6]...))
}

// send begins to send a message. Neither part is on a stack, and both stay as
// they are until the request is complete.
func (c *caller) send(ep endpointHandle, h *head, p []byte) request {
	param := &c.param
	if len(p) >= rendezvousFrom {
		param = &c.large
	}
	c.args = [7]uintptr{
		uintptr(ep), 0, uintptr(unsafe.Pointer(&h[0])), headSize,
		uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(unsafe.Pointer(param)),
	}
	return request(c.SendMessage.Call(c.args[:7]...))
}

// fetch begins to fill p with the data of a message that was reported to be
// fetched.
func (c *caller) fetch(w workerHandle, data uintptr, p []byte) request {
	c.args = [7]uintptr{
		uintptr(w), data, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(unsafe.Pointer(&c.param)),
	}
	return request(c.ReceiveData.Call(c.args[:5]...))
}

// decline gives back what will not be fetched.
func (c *caller) decline(w workerHandle, data uintptr) {
	c.args[0], c.args[1] = uintptr(w), data
	c.ReleaseData.Call(c.args[:2]...)
}

// flush begins to wait until what was begun on an endpoint is done at the
// peer.
func (c *caller) flush(ep endpointHandle) request {
	c.args[0], c.args[1] = uintptr(ep), uintptr(unsafe.Pointer(&c.param))
	return request(c.EpFlush.Call(c.args[:2]...))
}

// closeNow begins to end an endpoint, which does not ask the peer.
func (c *caller) closeNow(ep endpointHandle) request {
	p := requestParam{opAttrMask: opFlags, flags: epCloseForce}
	return request(c.EpClose.Call(uintptr(ep), uintptr(unsafe.Pointer(&p))))
}

// progress has a worker go on, and returns how much it did.
func (c *caller) progress(w workerHandle) int {
	return int(uint32(c.one(c.WorkerProgress, uintptr(w))))
}

// arm has a worker's descriptor tell of what comes: statusBusy is what came
// before.
func (c *caller) arm(w workerHandle) Status { return statusOf(c.one(c.WorkerArm, uintptr(w))) }

// settled says whether the library is done with a request, gives it back
// then, and notes how it ended.
func (c *caller) settled(r *request, end *Status) bool {
	if *r == 0 {
		return true
	}
	s := statusOf(c.one(c.RequestCheckStatus, uintptr(*r)))
	if s == statusInProgress {
		return false
	}
	c.one(c.RequestFree, uintptr(*r))
	*r, *end = 0, s
	return true
}
