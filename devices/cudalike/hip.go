package cudalike

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// hipAPI is the used part of libamdhip64. Signatures and numbers are those of
// hip/hip_runtime_api.h and hip/driver_types.h of HIP 5.2; a test compares them
// where the headers are installed. The copies are the ones whose name says the
// direction: they have no kind that could be the wrong one.
//
// hipInit is not called: in a process that sees no device it answers "invalid
// device", where hipGetDeviceCount, which makes the runtime ready as well,
// answers "no device".
type hipAPI struct {
	GetDeviceCount     dl.Func     `dl:"hipGetDeviceCount"`
	DeviceGetName      dl.Func     `dl:"hipDeviceGetName"`
	DeviceGetPCIBusID  dl.Func     `dl:"hipDeviceGetPCIBusId"`
	DeviceGetUUID      dl.Func     `dl:"hipDeviceGetUuid,optional"`
	SetDevice          dl.Func     `dl:"hipSetDevice"`
	MemGetInfo         dl.Func     `dl:"hipMemGetInfo"`
	Malloc             dl.Func     `dl:"hipMalloc"`
	Free               dl.Func     `dl:"hipFree"`
	StreamCreate       dl.Func     `dl:"hipStreamCreateWithFlags"`
	StreamDestroy      dl.Func     `dl:"hipStreamDestroy"`
	StreamSynchronize  dl.Func     `dl:"hipStreamSynchronize"`
	MemcpyHtoDAsync    dl.Func     `dl:"hipMemcpyHtoDAsync"`
	MemcpyDtoHAsync    dl.Func     `dl:"hipMemcpyDtoHAsync"`
	MemcpyDtoDAsync    dl.Func     `dl:"hipMemcpyDtoDAsync"`
	MemsetD8Async      dl.Func     `dl:"hipMemsetD8Async"`
	CanAccessPeer      dl.Func     `dl:"hipDeviceCanAccessPeer,optional"`
	EnablePeerAccess   dl.Func     `dl:"hipDeviceEnablePeerAccess,optional"`
	MemcpyPeerAsync    dl.Func     `dl:"hipMemcpyPeerAsync,optional"`
	IPCGetMemHandle    dl.Func     `dl:"hipIpcGetMemHandle,optional"`
	IPCOpenMemHandle   openByValue `dl:"hipIpcOpenMemHandle,optional"`
	IPCCloseMemHandle  dl.Func     `dl:"hipIpcCloseMemHandle,optional"`
	MemGetAddressRange dl.Func     `dl:"hipMemGetAddressRange,optional"`
	HostRegister       dl.Func     `dl:"hipHostRegister,optional"`
	HostUnregister     dl.Func     `dl:"hipHostUnregister,optional"`
	GetErrorName       dl.Func     `dl:"hipGetErrorName"`
	GetErrorString     dl.Func     `dl:"hipGetErrorString"`
}

// The constants of HIP's headers.
const (
	hipErrorInvalidValue             = 1
	hipErrorOutOfMemory              = 2
	hipErrorDeinitialized            = 4
	hipErrorECCNotCorrectable        = 214
	hipErrorIllegalAddress           = 700
	hipErrorLaunchTimeOut            = 702
	hipErrorPeerAccessAlreadyEnabled = 704
	hipErrorContextIsDestroyed       = 709
	hipErrorAssert                   = 710
	hipErrorLaunchFailure            = 719
	hipStreamNonBlocking             = 1
	hipHostRegisterPortable          = 1
	// hipIpcMemLazyEnablePeerAccess is 0 up to HIP 5 and 1 since, and the only
	// flag that a library takes.
	hipIPCLazyOld, hipIPCLazy = 0, 1
)

// NewHIP makes the driver of AMD's GPUs and Hygon's DCUs.
func NewHIP(opts Options) *Driver {
	return newDriver(family{
		name:   HIP,
		vendor: "AMD or Hygon",
		library: dl.Library{
			Names: []string{
				"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
				"libgalaxyhip.so.5", "/opt/rocm/lib/libamdhip64.so", "/opt/dtk/hip/lib/libgalaxyhip.so.5",
			},
			Hint: "install ROCm, or DTK for a Hygon DCU (apt install libamdhip64-5)",
		},
		check: "is the amdgpu driver loaded, and may you open /dev/kfd?",
		adapt: adaptHIP,
	}, opts)
}

func adaptHIP(lib *dl.Handle) (*table, error) {
	a := &hipAPI{}
	if err := lib.Resolve(a); err != nil {
		return nil, fmt.Errorf("HIP 4.0 is needed: %w", err)
	}
	t := &table{codes: codes{
		name:        func(code int32) string { return dl.String(a.GetErrorName.Call(uintptr(code))) },
		text:        func(code int32) string { return dl.String(a.GetErrorString.Call(uintptr(code))) },
		outOfMemory: []int32{hipErrorOutOfMemory},
		fatal: []int32{
			hipErrorDeinitialized, hipErrorECCNotCorrectable, hipErrorIllegalAddress, hipErrorLaunchTimeOut,
			hipErrorContextIsDestroyed, hipErrorAssert, hipErrorLaunchFailure,
		},
		peerEnabled: hipErrorPeerAccessAlreadyEnabled,
	}}
	a.devices(t)
	a.memory(t)
	if a.CanAccessPeer.Present() && a.EnablePeerAccess.Present() && a.MemcpyPeerAsync.Present() {
		t.peer = a.peer(t)
	}
	if a.IPCGetMemHandle.Present() && a.IPCOpenMemHandle != nil && a.IPCCloseMemHandle.Present() {
		t.ipc = a.ipc(t)
	}
	if a.HostRegister.Present() && a.HostUnregister.Present() {
		t.pin = a.pin(t)
	}
	return t, nil
}

func (a *hipAPI) devices(t *table) {
	t.init = func() error { return nil }
	t.count = func() (int, error) {
		n, r := outFirst(a.GetDeviceCount)
		return int(int32(n)), t.codes.check("hipGetDeviceCount", r)
	}
	t.name = func(ordinal int) (string, error) {
		buf := make([]byte, 256)
		r := bytesFirst(a.DeviceGetName, buf, uintptr(len(buf)), uintptr(ordinal))
		return cString(buf), t.codes.check("hipDeviceGetName", r)
	}
	t.pci = func(ordinal int) (string, error) {
		buf := make([]byte, 64)
		r := bytesFirst(a.DeviceGetPCIBusID, buf, uintptr(len(buf)), uintptr(ordinal))
		return cString(buf), t.codes.check("hipDeviceGetPCIBusId", r)
	}
	if a.DeviceGetUUID.Present() {
		t.uuid = func(ordinal int) (string, error) {
			buf := make([]byte, 16)
			r := bytesFirst(a.DeviceGetUUID, buf, uintptr(ordinal))
			return hipUUID(buf), t.codes.check("hipDeviceGetUuid", r)
		}
	}
	t.set = func(b binding) error {
		return t.codes.check("hipSetDevice", a.SetDevice.Call(uintptr(b.ordinal)))
	}
	t.acquire = func(ordinal int) (binding, error) {
		b := binding{ordinal: ordinal}
		return b, t.set(b)
	}
	t.release = func(binding) error { return nil }
}

// hipUUID writes a card's name as rocm-smi does: the sixteen bytes are digits.
// Other runtimes of this shape have plain bytes there.
func hipUUID(p []byte) string {
	text := cString(p)
	switch {
	case text == "":
		return ""
	case strings.Trim(text, "0123456789abcdefABCDEF") == "":
		return "GPU-" + strings.ToLower(text)
	}
	return "GPU-" + hex.EncodeToString(p)
}

func (a *hipAPI) memory(t *table) {
	check := t.codes.check
	t.memory = func() (free, total uint64, err error) {
		x, y, r := outBoth(a.MemGetInfo)
		return uint64(x), uint64(y), check("hipMemGetInfo", r)
	}
	t.alloc = func(n uint64) (address, error) {
		p, r := outFirst(a.Malloc, uintptr(n))
		return address(p), check("hipMalloc", r)
	}
	t.free = func(p address) error { return check("hipFree", a.Free.Call(uintptr(p))) }
	t.newStream = func() (stream, error) {
		s, r := outFirst(a.StreamCreate, hipStreamNonBlocking)
		return stream(s), check("hipStreamCreateWithFlags", r)
	}
	t.endStream = func(s stream) error { return check("hipStreamDestroy", a.StreamDestroy.Call(uintptr(s))) }
	t.wait = func(s stream) error { return check("hipStreamSynchronize", a.StreamSynchronize.Call(uintptr(s))) }
	t.in = func(dst target, src []byte, s stream) error {
		r := bytesSecond(a.MemcpyHtoDAsync, uintptr(dst.at), src, uintptr(len(src)), uintptr(s))
		return check("hipMemcpyHtoDAsync", r)
	}
	t.out = func(dst []byte, src address, s stream) error {
		r := bytesFirst(a.MemcpyDtoHAsync, dst, uintptr(src), uintptr(len(dst)), uintptr(s))
		return check("hipMemcpyDtoHAsync", r)
	}
	t.copy = func(dst target, src address, n uint64, s stream) error {
		r := a.MemcpyDtoDAsync.Call(uintptr(dst.at), uintptr(src), uintptr(n), uintptr(s))
		return check("hipMemcpyDtoDAsync", r)
	}
	t.fill = func(dst target, value byte, n uint64, s stream) error {
		r := a.MemsetD8Async.Call(uintptr(dst.at), uintptr(value), uintptr(n), uintptr(s))
		return check("hipMemsetD8Async", r)
	}
}

func (a *hipAPI) peer(t *table) *peerTable {
	return &peerTable{
		can: func(worker, other binding) (bool, error) {
			can, r := outFirst(a.CanAccessPeer, uintptr(worker.ordinal), uintptr(other.ordinal))
			return int32(can) != 0, t.codes.check("hipDeviceCanAccessPeer", r)
		},
		enable: func(other binding) error {
			return t.codes.check("hipDeviceEnablePeerAccess", a.EnablePeerAccess.Call(uintptr(other.ordinal), 0))
		},
		copy: func(dst target, to binding, src address, from binding, n uint64, s stream) error {
			r := a.MemcpyPeerAsync.Call(uintptr(dst.at), uintptr(to.ordinal),
				uintptr(src), uintptr(from.ordinal), uintptr(n), uintptr(s))
			return t.codes.check("hipMemcpyPeerAsync", r)
		},
	}
}

func (a *hipAPI) ipc(t *table) *ipcTable {
	x := &ipcTable{
		size: handleSize,
		export: func(p address, _ uint64) ([]byte, error) {
			handle := make([]byte, handleSize)
			r := bytesFirst(a.IPCGetMemHandle, handle, uintptr(p))
			return handle, t.codes.check("hipIpcGetMemHandle", r)
		},
		open: func(handle []byte) (address, error) {
			p, r := a.IPCOpenMemHandle.call(handle, hipIPCLazy)
			if r == hipErrorInvalidValue {
				p, r = a.IPCOpenMemHandle.call(handle, hipIPCLazyOld)
			}
			return address(p), t.codes.check("hipIpcOpenMemHandle", uintptr(r))
		},
		close: func(_ []byte, p address) error {
			return t.codes.check("hipIpcCloseMemHandle", a.IPCCloseMemHandle.Call(uintptr(p)))
		},
	}
	if a.MemGetAddressRange.Present() {
		x.extent = func(p address) (uint64, error) {
			_, n, r := outBoth(a.MemGetAddressRange, uintptr(p))
			return uint64(n), t.codes.check("hipMemGetAddressRange", r)
		}
	}
	return x
}

func (a *hipAPI) pin(t *table) *pinTable {
	return &pinTable{
		align: 1,
		register: func(p []byte) error {
			r := bytesFirst(a.HostRegister, p, uintptr(len(p)), hipHostRegisterPortable)
			return t.codes.check("hipHostRegister", r)
		},
		unregister: func(p []byte) error {
			return t.codes.check("hipHostUnregister", bytesFirst(a.HostUnregister, p))
		},
	}
}
