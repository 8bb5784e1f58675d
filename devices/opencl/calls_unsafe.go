package opencl

import (
	"runtime"
	"unsafe"
)

// createContext creates a context for one device.
func (a *api) createContext(d deviceID) (contextID, error) {
	var code Code
	c := a.CreateContext.Call(0, 1, uintptr(unsafe.Pointer(&d)), 0, 0, uintptr(unsafe.Pointer(&code)))
	return contextID(c), check("clCreateContext", code)
}

// createQueue creates an in-order queue.
func (a *api) createQueue(c contextID, d deviceID) (queueID, error) {
	var code Code
	q := a.CreateCommandQueue.Call(uintptr(c), uintptr(d), 0, uintptr(unsafe.Pointer(&code)))
	return queueID(q), check("clCreateCommandQueue", code)
}

func (a *api) releaseQueue(q queueID) error {
	return check("clReleaseCommandQueue", Code(a.ReleaseCommandQueue.Call(uintptr(q))))
}

// createBuffer creates a buffer of n bytes, in the driver's memory if own is nil. Otherwise
// own is n bytes outside Go's heap, which the buffer uses until it is released.
func (a *api) createBuffer(c contextID, flags uintptr, n uint64, own []byte) (memID, error) {
	var code Code
	m := a.CreateBuffer.Call(uintptr(c), flags, uintptr(n),
		uintptr(unsafe.Pointer(unsafe.SliceData(own))), uintptr(unsafe.Pointer(&code)))
	return memID(m), check("clCreateBuffer", code)
}

func (a *api) releaseBuffer(m memID) error {
	return check("clReleaseMemObject", Code(a.ReleaseMemObject.Call(uintptr(m))))
}

// read fills p, which must not be empty, from the buffer and returns when that is complete.
func (a *api) read(q queueID, m memID, off uint64, p []byte) error {
	code := Code(a.EnqueueReadBuffer.Call(uintptr(q), uintptr(m), clTrue,
		uintptr(off), uintptr(len(p)), uintptr(unsafe.Pointer(&p[0])), 0, 0, 0))
	return a.blocked(q, "clEnqueueReadBuffer", code, p)
}

// write copies p, which must not be empty, into the buffer and returns when that is
// complete.
func (a *api) write(q queueID, m memID, off uint64, p []byte) error {
	code := Code(a.EnqueueWriteBuffer.Call(uintptr(q), uintptr(m), clTrue,
		uintptr(off), uintptr(len(p)), uintptr(unsafe.Pointer(&p[0])), 0, 0, 0))
	return a.blocked(q, "clEnqueueWriteBuffer", code, p)
}

// place is a position in a buffer.
type place struct {
	mem memID
	off uint64
}

// copy copies n bytes between ranges that don't overlap and returns when that is complete.
func (a *api) copy(q queueID, dst, src place, n uint64) error {
	event, err := a.startCopy(q, dst, src, n)
	return a.await(q, "clEnqueueCopyBuffer", event, err)
}

// fill repeats the pattern over n bytes and returns when that is complete. Both offset and
// n must be multiples of the pattern's length, which is a power of two up to 128.
func (a *api) fill(q queueID, dst place, n uint64, pattern []byte) error {
	event, err := a.startFill(q, dst, n, pattern)
	return a.await(q, "clEnqueueFillBuffer", event, err)
}

// mapBuffer maps the first n bytes of the buffer for the host, for reading and writing.
func (a *api) mapBuffer(q queueID, m memID, n uint64) (uintptr, error) {
	var code Code
	addr := a.EnqueueMapBuffer.Call(uintptr(q), uintptr(m), clTrue, clMapRead|clMapWrite,
		0, uintptr(n), 0, 0, 0, uintptr(unsafe.Pointer(&code)))
	return addr, check("clEnqueueMapBuffer", code)
}

// unmap ends a map and returns when the device may use the buffer again.
func (a *api) unmap(q queueID, m memID, addr uintptr) error {
	var event eventPointer
	code := Code(a.EnqueueUnmap.Call(uintptr(q), uintptr(m), addr, 0, 0, uintptr(unsafe.Pointer(&event))))
	return a.await(q, "clEnqueueUnmapMemObject", event, check("clEnqueueUnmapMemObject", code))
}

// blocked completes a blocking command that accesses p. After a failure it waits for the
// queue, so that the driver never accesses p after the return.
func (a *api) blocked(q queueID, call string, code Code, p []byte) error {
	if code != codeSuccess {
		a.Finish.Call(uintptr(q))
	}
	runtime.KeepAlive(p)
	return check(call, code)
}

// await waits for the event of a command, unless err is why it could not be enqueued, and
// returns the command's own error if it has one. In any case the command is no longer
// running when it returns.
func (a *api) await(q queueID, call string, event eventPointer, err error) error {
	if err != nil {
		return err
	}
	code := a.waitEvent(event)
	if code != codeSuccess {
		a.Finish.Call(uintptr(q))
	}
	a.ReleaseEvent.Call(event)
	return check(call, code)
}
