package cuda

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// The handles of CUDA. Addresses are device addresses, which the host must not access.
type (
	cuDevice   int32
	cuContext  uintptr
	cuStream   uintptr
	cuPhysical uint64         // CUmemGenericAllocationHandle
	address    = card.Address // CUdeviceptr
)

// api is the function table of the driver's library. All functions may be called from any
// thread; those that need a context use that of the calling thread.
type api struct {
	Init             dl.Func `dl:"cuInit"`
	DriverGetVersion dl.Func `dl:"cuDriverGetVersion"`
	GetErrorName     dl.Func `dl:"cuGetErrorName"`
	GetErrorString   dl.Func `dl:"cuGetErrorString"`

	// These need no context.
	DeviceGetCount       dl.Func `dl:"cuDeviceGetCount"`
	DeviceGet            dl.Func `dl:"cuDeviceGet"`
	DeviceGetName        dl.Func `dl:"cuDeviceGetName"`
	DeviceTotalMem       dl.Func `dl:"cuDeviceTotalMem_v2"`
	DeviceGetPCIBusID    dl.Func `dl:"cuDeviceGetPCIBusId"`
	DeviceGetUUID        dl.Func `dl:"cuDeviceGetUuid"`
	DeviceGetUUIDv2      dl.Func `dl:"cuDeviceGetUuid_v2,optional"` // since 11.4
	DeviceGetAttribute   dl.Func `dl:"cuDeviceGetAttribute"`
	DeviceCanAccessPeer  dl.Func `dl:"cuDeviceCanAccessPeer"`
	P2PAttribute         dl.Func `dl:"cuDeviceGetP2PAttribute,optional"` // since 8.0
	DevicePrimaryRetain  dl.Func `dl:"cuDevicePrimaryCtxRetain"`
	DevicePrimaryRelease dl.Func `dl:"cuDevicePrimaryCtxRelease_v2"`
	CtxSetCurrent        dl.Func `dl:"cuCtxSetCurrent"`

	StreamCreate      dl.Func `dl:"cuStreamCreate"`
	StreamDestroy     dl.Func `dl:"cuStreamDestroy_v2"`
	StreamSynchronize dl.Func `dl:"cuStreamSynchronize"`

	MemGetInfo        dl.Func `dl:"cuMemGetInfo_v2"`
	MemAlloc          dl.Func `dl:"cuMemAlloc_v2"`
	MemFree           dl.Func `dl:"cuMemFree_v2"`
	MemHostAlloc      dl.Func `dl:"cuMemHostAlloc"`
	MemFreeHost       dl.Func `dl:"cuMemFreeHost"`
	MemHostRegister   dl.Func `dl:"cuMemHostRegister_v2"`
	MemHostUnregister dl.Func `dl:"cuMemHostUnregister"`

	MemcpyHtoD dl.Func `dl:"cuMemcpyHtoDAsync_v2"`
	MemcpyDtoH dl.Func `dl:"cuMemcpyDtoHAsync_v2"`
	MemcpyDtoD dl.Func `dl:"cuMemcpyDtoDAsync_v2"`
	MemcpyPeer dl.Func `dl:"cuMemcpyPeerAsync"`
	MemsetD8   dl.Func `dl:"cuMemsetD8Async"`
	EnablePeer dl.Func `dl:"cuCtxEnablePeerAccess"`

	// Kernels.
	ModuleLoad     dl.Func `dl:"cuModuleLoadData,optional"`
	ModuleUnload   dl.Func `dl:"cuModuleUnload,optional"`
	ModuleFunction dl.Func `dl:"cuModuleGetFunction,optional"`
	Launch         dl.Func `dl:"cuLaunchKernel,optional"`

	// Events.
	EventCreate     dl.Func `dl:"cuEventCreate,optional"`
	EventDestroy    dl.Func `dl:"cuEventDestroy_v2,optional"`
	EventRecord     dl.Func `dl:"cuEventRecord,optional"`
	EventQuery      dl.Func `dl:"cuEventQuery,optional"`
	StreamWaitEvent dl.Func `dl:"cuStreamWaitEvent,optional"`

	// Virtual memory, since 10.2, and not on every platform.
	MemGranularity    dl.Func `dl:"cuMemGetAllocationGranularity,optional"`
	MemAddressReserve dl.Func `dl:"cuMemAddressReserve,optional"`
	MemAddressFree    dl.Func `dl:"cuMemAddressFree,optional"`
	MemCreate         dl.Func `dl:"cuMemCreate,optional"`
	MemRelease        dl.Func `dl:"cuMemRelease,optional"`
	MemMap            dl.Func `dl:"cuMemMap,optional"`
	MemUnmap          dl.Func `dl:"cuMemUnmap,optional"`
	MemSetAccess      dl.Func `dl:"cuMemSetAccess,optional"`
	MemExport         dl.Func `dl:"cuMemExportToShareableHandle,optional"`
	MemImport         dl.Func `dl:"cuMemImportFromShareableHandle,optional"`
	MemProperties     dl.Func `dl:"cuMemGetAllocationPropertiesFromHandle,optional"`

	// IPC.
	MemAddressRange dl.Func `dl:"cuMemGetAddressRange_v2,optional"`
	IPCGet          dl.Func `dl:"cuIpcGetMemHandle,optional"`
	IPCClose        dl.Func `dl:"cuIpcCloseMemHandle,optional"`
	// IPCOpen takes the handle by value, which machine words can't express.
	IPCOpen func(p *address, h ipcHandle, flags uint32) Code `dl:"cuIpcOpenMemHandle_v2,optional"`
}

// hasVirtual reports whether the library has all functions for virtual memory.
func (a *api) hasVirtual() bool {
	return dl.AllPresent(a.MemGranularity, a.MemAddressReserve, a.MemAddressFree, a.MemCreate, a.MemRelease,
		a.MemMap, a.MemUnmap, a.MemSetAccess, a.MemExport, a.MemImport, a.MemProperties)
}

// hasIPC reports whether the library has all functions for IPC.
func (a *api) hasIPC() bool {
	return dl.AllPresent(a.MemAddressRange, a.IPCGet, a.IPCClose) && a.IPCOpen != nil
}

// The oldest supported driver, as reported by cuDriverGetVersion, and as text for people.
const (
	oldestVersion = 11000
	oldestDriver  = "450"
)

// library describes the driver's library; path, if not empty, replaces the default names.
func library(path string) dl.Library {
	l := dl.Library{
		Names: []string{"libcuda.so.1", "libcuda.so"},
		Hint:  "install the NVIDIA driver; in a container, start it with the GPUs (--gpus all)",
	}
	if path != "" {
		l.Names = []string{path}
	}
	return l
}

// load opens the library, fills its table and initializes the driver. The error explains
// why there is no device.
func load(from dl.Library) (*api, error) {
	lib, err := dl.Open(from)
	if err != nil {
		return nil, err
	}
	// The version is checked before the table is filled: that the driver is too old is more
	// helpful than the name of the first missing function.
	first := &struct {
		DriverGetVersion dl.Func `dl:"cuDriverGetVersion"`
	}{}
	if err = lib.Resolve(first); err != nil {
		return nil, fmt.Errorf("%s is not a CUDA driver: %w", lib.Name(), err)
	}
	a := &api{DriverGetVersion: first.DriverGetVersion}
	version, err := ask[int32](a, "cuDriverGetVersion", a.DriverGetVersion)
	if err == nil && version < oldestVersion {
		return nil, fmt.Errorf("the NVIDIA driver is too old: it has CUDA %s, %s is needed (driver %s or newer): %w",
			versionText(version), versionText(oldestVersion), oldestDriver, devices.ErrUnsupported)
	}
	if err := lib.Resolve(a); err != nil {
		return nil, fmt.Errorf("CUDA %s is needed: %w", versionText(oldestVersion), err)
	}
	if err := a.init(); err != nil {
		return nil, err
	}
	return a, nil
}

func versionText(v int32) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
