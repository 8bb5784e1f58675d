package ucx

import (
	"unsafe"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// caller makes the calls of the data path. Their arguments are stored in memory
// that it keeps, whereas each call of dl.Func.Call itself would allocate them.
// One goroutine at a time may use it.
type caller struct {
	*api
	args [7]uintptr
	// param is the parameter of every operation.
	param requestParam
	// large is the parameter of messages whose data the receiver fetches.
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

// move starts to write p at an address of the peer, or to fill p from it: f is Put
// or Get. p must not be on a stack, and must not change until the request is
// complete.
func (c *caller) move(f dl.Func, ep endpointHandle, p []byte, at uint64, k remoteKey) request {
	c.args = [7]uintptr{
		uintptr(ep), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(at),
		uintptr(k), uintptr(unsafe.Pointer(&c.param)),
	}
	return request(f.Call(c.args[:6]...))
}

// send starts to send a message. Neither part may be on a stack, and both must
// not change until the request is complete.
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

// fetch starts to fill p with the data of a message that was announced for
// fetching.
func (c *caller) fetch(w workerHandle, data uintptr, p []byte) request {
	c.args = [7]uintptr{
		uintptr(w), data, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(unsafe.Pointer(&c.param)),
	}
	return request(c.ReceiveData.Call(c.args[:5]...))
}

// decline releases data that will not be fetched.
func (c *caller) decline(w workerHandle, data uintptr) {
	c.args[0], c.args[1] = uintptr(w), data
	c.ReleaseData.Call(c.args[:2]...)
}

// flush starts to wait until the operations started on an endpoint are complete
// at the peer.
func (c *caller) flush(ep endpointHandle) request {
	c.args[0], c.args[1] = uintptr(ep), uintptr(unsafe.Pointer(&c.param))
	return request(c.EpFlush.Call(c.args[:2]...))
}

// closeNow starts to end an endpoint, without involving the peer.
func (c *caller) closeNow(ep endpointHandle) request {
	p := requestParam{opAttrMask: opFlags, flags: epCloseForce}
	return request(c.EpClose.Call(uintptr(ep), uintptr(unsafe.Pointer(&p))))
}

// progress makes a worker progress, and returns the number of events that it
// processed.
func (c *caller) progress(w workerHandle) int {
	return int(uint32(c.one(c.WorkerProgress, uintptr(w))))
}

// arm arms a worker's descriptor for future events: statusBusy means that events
// have arrived already.
func (c *caller) arm(w workerHandle) Status { return statusOf(c.one(c.WorkerArm, uintptr(w))) }

// settled reports whether the library has finished a request; if so, it frees the
// request and stores its status.
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
