package opencl

import "unsafe"

// status says how far the command of an event is: 0 is done, less is the error
// that it has failed with.
func (a *api) status(event eventPointer) (Code, error) {
	var status Code
	code := Code(a.GetEventInfo.Call(event, clEventCommandExecutionStatus,
		unsafe.Sizeof(status), uintptr(unsafe.Pointer(&status)), 0))
	return status, check("clGetEventInfo", code)
}

// waitEvent waits for an event whose holder keeps it.
func (a *api) waitEvent(event eventPointer) error {
	code := Code(a.WaitForEvents.Call(1, uintptr(unsafe.Pointer(&event))))
	if code == codeExecStatus {
		if status, err := a.status(event); err == nil && status < 0 {
			code = status
		}
	}
	return check("clWaitForEvents", code)
}

func (a *api) releaseEvent(event eventPointer) error {
	return check("clReleaseEvent", Code(a.ReleaseEvent.Call(event)))
}

// marker makes an event that happens when all commands of the queue are done.
func (a *api) marker(q queueID) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueMarker.Call(uintptr(q), 0, 0, uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueMarkerWithWaitList", code)
}

// barrier has all later commands of the queue wait for an event, and makes one
// of its own.
func (a *api) barrier(q queueID, behind eventPointer) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueBarrier.Call(uintptr(q), 1, uintptr(unsafe.Pointer(&behind)), uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueBarrierWithWaitList", code)
}

// startCopy begins a copy between ranges that don't overlap.
func (a *api) startCopy(q queueID, dst, src place, n uint64) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueCopyBuffer.Call(uintptr(q), uintptr(src.mem), uintptr(dst.mem),
		uintptr(src.off), uintptr(dst.off), uintptr(n), 0, 0, uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueCopyBuffer", code)
}

// startFill begins to set n bytes.
func (a *api) startFill(q queueID, dst place, n uint64, value byte) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueFillBuffer.Call(uintptr(q), uintptr(dst.mem), uintptr(unsafe.Pointer(&value)),
		1, uintptr(dst.off), uintptr(n), 0, 0, uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueFillBuffer", code)
}

// flush has the device begin what is queued. Without it another queue may wait
// for ever.
func (a *api) flush(q queueID) error {
	return check("clFlush", Code(a.Flush.Call(uintptr(q))))
}

func (a *api) finish(q queueID) error {
	return check("clFinish", Code(a.Finish.Call(uintptr(q))))
}
