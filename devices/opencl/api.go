package opencl

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// The handles of OpenCL objects. All are pointers owned by the library.
type (
	platformID   uintptr
	deviceID     uintptr
	contextID    uintptr
	queueID      uintptr
	memID        uintptr
	programID    uintptr
	kernelID     uintptr
	eventPointer = uintptr
)

// api is the function table of an OpenCL library. All functions are part of OpenCL 1.2 and
// may be called from any thread, but SetKernelArg for one kernel only by one thread at a
// time.
type api struct {
	GetPlatformIDs      dl.Func `dl:"clGetPlatformIDs"`
	GetPlatformInfo     dl.Func `dl:"clGetPlatformInfo"`
	GetDeviceIDs        dl.Func `dl:"clGetDeviceIDs"`
	GetDeviceInfo       dl.Func `dl:"clGetDeviceInfo"`
	CreateContext       dl.Func `dl:"clCreateContext"`
	ReleaseContext      dl.Func `dl:"clReleaseContext"`
	CreateCommandQueue  dl.Func `dl:"clCreateCommandQueue"`
	ReleaseCommandQueue dl.Func `dl:"clReleaseCommandQueue"`
	CreateBuffer        dl.Func `dl:"clCreateBuffer"`
	ReleaseMemObject    dl.Func `dl:"clReleaseMemObject"`
	EnqueueReadBuffer   dl.Func `dl:"clEnqueueReadBuffer"`
	EnqueueWriteBuffer  dl.Func `dl:"clEnqueueWriteBuffer"`
	EnqueueCopyBuffer   dl.Func `dl:"clEnqueueCopyBuffer"`
	EnqueueFillBuffer   dl.Func `dl:"clEnqueueFillBuffer"`
	EnqueueMapBuffer    dl.Func `dl:"clEnqueueMapBuffer"`
	EnqueueUnmap        dl.Func `dl:"clEnqueueUnmapMemObject"`
	Finish              dl.Func `dl:"clFinish"`
	WaitForEvents       dl.Func `dl:"clWaitForEvents"`
	GetEventInfo        dl.Func `dl:"clGetEventInfo"`
	ReleaseEvent        dl.Func `dl:"clReleaseEvent"`

	EnqueueMarker  dl.Func `dl:"clEnqueueMarkerWithWaitList"`
	EnqueueBarrier dl.Func `dl:"clEnqueueBarrierWithWaitList"`
	Flush          dl.Func `dl:"clFlush"`

	CreateProgram  dl.Func `dl:"clCreateProgramWithSource"`
	BuildProgram   dl.Func `dl:"clBuildProgram"`
	GetBuildInfo   dl.Func `dl:"clGetProgramBuildInfo"`
	ReleaseProgram dl.Func `dl:"clReleaseProgram"`
	CreateKernel   dl.Func `dl:"clCreateKernel"`
	SetKernelArg   dl.Func `dl:"clSetKernelArg"`
	EnqueueNDRange dl.Func `dl:"clEnqueueNDRangeKernel"`
	ReleaseKernel  dl.Func `dl:"clReleaseKernel"`
}

// library describes the loader of OpenCL drivers.
func library() dl.Library {
	return dl.Library{
		Names: []string{"libOpenCL.so.1", "libOpenCL.so"},
		Hint: "apt install ocl-icd-libopencl1, and the driver of the device " +
			"(pocl-opencl-icd for the CPU)",
	}
}

// load opens the library and fills its table.
func load(from dl.Library) (*api, error) {
	lib, err := dl.Open(from)
	if err != nil {
		return nil, err
	}
	a := &api{}
	if err := lib.Resolve(a); err != nil {
		return nil, fmt.Errorf("OpenCL 1.2 is needed: %w", err)
	}
	return a, nil
}
