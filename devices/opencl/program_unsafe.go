package opencl

import (
	"fmt"
	"runtime"
	"unsafe"
)

// compile builds a program for a device. The error includes the compiler's output.
func (a *api) compile(c contextID, d deviceID, source, options string) (programID, error) {
	text, flags := append([]byte(source), 0), append([]byte(options), 0)
	// The library reads the address from memory, so text must not move.
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&text[0])
	texts := []uintptr{uintptr(unsafe.Pointer(&text[0]))}
	var code Code
	p := programID(a.CreateProgram.Call(uintptr(c), 1, uintptr(unsafe.Pointer(&texts[0])), 0, uintptr(unsafe.Pointer(&code))))
	if err := check("clCreateProgramWithSource", code); err != nil {
		return 0, err
	}
	code = Code(a.BuildProgram.Call(uintptr(p), 1, uintptr(unsafe.Pointer(&d)), uintptr(unsafe.Pointer(&flags[0])), 0, 0))
	if err := check("clBuildProgram", code); err != nil {
		err = fmt.Errorf("%w: %s", err, a.buildLog(p, d))
		a.ReleaseProgram.Call(uintptr(p))
		return 0, err
	}
	return p, nil
}

// buildLog returns the compiler's output for a program.
func (a *api) buildLog(p programID, d deviceID) string {
	text := make([]byte, 4096)
	a.GetBuildInfo.Call(uintptr(p), uintptr(d), clProgramBuildLog, uintptr(len(text)), uintptr(unsafe.Pointer(&text[0])), 0)
	return cText(text)
}

func (a *api) createKernel(p programID, name string) (kernelID, error) {
	text := append([]byte(name), 0)
	var code Code
	k := a.CreateKernel.Call(uintptr(p), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&code)))
	return kernelID(k), check("clCreateKernel", code)
}

// setWord sets an argument of 8 bytes: a buffer, or a number.
func (a *api) setWord(k kernelID, at int, word uint64) error {
	return check("clSetKernelArg",
		Code(a.SetKernelArg.Call(uintptr(k), uintptr(at), unsafe.Sizeof(word), uintptr(unsafe.Pointer(&word)))))
}

// launch starts a kernel for n items. The caller awaits the event.
func (a *api) launch(q queueID, k kernelID, n uint64) (eventPointer, error) {
	var event eventPointer
	code := Code(a.EnqueueNDRange.Call(uintptr(q), uintptr(k), 1, 0, uintptr(unsafe.Pointer(&n)), 0,
		0, 0, uintptr(unsafe.Pointer(&event))))
	return event, check("clEnqueueNDRangeKernel", code)
}
