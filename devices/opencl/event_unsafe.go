package opencl

import "unsafe"

// status returns the execution status of an event's command: 0 means complete, a negative
// value is the error with which it failed.
func (a *api) status(event eventPointer) (Code, error) {
	var status Code
	code := Code(a.GetEventInfo.Call(event, clEventCommandExecutionStatus,
		unsafe.Sizeof(status), uintptr(unsafe.Pointer(&status)), 0))
	return status, check("clGetEventInfo", code)
}

// waitEvent waits for an event that the caller holds. The code is that of the command, if
// that has failed.
func (a *api) waitEvent(event eventPointer) Code {
	code := Code(a.WaitForEvents.Call(1, uintptr(unsafe.Pointer(&event))))
	if code == codeExecStatus {
		if status, err := a.status(event); err == nil && status < 0 {
			code = status
		}
	}
	return code
}

// marker returns an event that happens when all commands of the queue are complete.
func (a *api) marker(q queueID) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueMarker.Call(uintptr(q), 0, 0, uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueMarkerWithWaitList", code)
}

// barrier makes all later commands of the queue wait for an event, and returns an event of
// its own.
func (a *api) barrier(q queueID, behind eventPointer) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueBarrier.Call(uintptr(q), 1, uintptr(unsafe.Pointer(&behind)), uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueBarrierWithWaitList", code)
}

// startCopy starts a copy between ranges that don't overlap.
func (a *api) startCopy(q queueID, dst, src place, n uint64) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueCopyBuffer.Call(uintptr(q), uintptr(src.mem), uintptr(dst.mem),
		uintptr(src.off), uintptr(dst.off), uintptr(n), 0, 0, uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueCopyBuffer", code)
}

// startFill starts filling n bytes with a pattern, as fill does.
func (a *api) startFill(q queueID, dst place, n uint64, pattern []byte) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueFillBuffer.Call(uintptr(q), uintptr(dst.mem), uintptr(unsafe.Pointer(&pattern[0])),
		uintptr(len(pattern)), uintptr(dst.off), uintptr(n), 0, 0, uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueFillBuffer", code)
}

// flush makes the device start the queued commands. Without it another queue may wait for
// ever.
func (a *api) flush(q queueID) error {
	return check("clFlush", Code(a.Flush.Call(uintptr(q))))
}

func (a *api) finish(q queueID) error {
	return check("clFinish", Code(a.Finish.Call(uintptr(q))))
}
