package cuda

import (
	"runtime"
	"unsafe"

	"github.com/hmcfs/hmcfs/devices"
)

type (
	cuModule   uintptr
	cuFunction uintptr
)

// moduleLoad has the driver compile a module.
func (a *api) moduleLoad(text string) (cuModule, error) {
	image := append([]byte(text), 0)
	var m cuModule
	err := a.check("cuModuleLoadData",
		code(a.ModuleLoad.Call(uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&image[0])))))
	return m, err
}

func (a *api) moduleUnload(m cuModule) error {
	return a.check("cuModuleUnload", code(a.ModuleUnload.Call(uintptr(m))))
}

func (a *api) function(m cuModule, name string) (cuFunction, error) {
	text := append([]byte(name), 0)
	var f cuFunction
	err := a.check("cuModuleGetFunction",
		code(a.ModuleFunction.Call(uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&text[0])))))
	return f, err
}

// kernelThreads is the number of threads in a block.
const kernelThreads = 256

// reduce launches a kernel of ptx for n elements. The call copies the arguments.
func (a *api) reduce(s cuStream, f cuFunction, dst, src address, n devices.Size) error {
	args := [3]uint64{uint64(dst), uint64(src), uint64(n)}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&args)
	list := [3]uintptr{
		uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&args[1])), uintptr(unsafe.Pointer(&args[2])),
	}
	blocks := (uintptr(n) + kernelThreads - 1) / kernelThreads
	return a.check("cuLaunchKernel", code(a.Launch.Call(uintptr(f), blocks, 1, 1, kernelThreads, 1, 1, 0,
		uintptr(s), uintptr(unsafe.Pointer(&list)), 0)))
}
