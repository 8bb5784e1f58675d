package cudalike

import (
	"encoding/hex"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
)

// aclAPI contains the used functions of libascendcl. Signatures and constants are those of
// acl/acl_rt.h, acl_base_rt.h and error_codes/rt_error_codes.h of CANN's public sources;
// the requirements of the calls are from the API reference there.
//
// A device is set once, which creates its default context, and threads then work with that
// context: setting the device counts references, and every operation would add one. aclInit
// is called once; if another part of the process has called it, it returns
// ACL_ERROR_REPEAT_INITIALIZE, which is meant to be ignored. aclFinalize affects the whole
// process and is never called.
//
// Inside a device both addresses of a copy must be multiples of 64. The runtime enlarges an
// allocation (to a multiple of 32 bytes, plus 32), but the destination lengths passed to
// copies must not include the extra bytes.
type aclAPI struct {
	Init                dl.Func `dl:"aclInit"`
	GetDeviceCount      dl.Func `dl:"aclrtGetDeviceCount"`
	GetSocName          dl.Func `dl:"aclrtGetSocName"`
	DeviceGetPCIBusID   dl.Func `dl:"aclrtDeviceGetPCIBusId,optional"`
	DeviceGetUUID       dl.Func `dl:"aclrtDeviceGetUuid,optional"`
	SetDevice           dl.Func `dl:"aclrtSetDevice"`
	ResetDevice         dl.Func `dl:"aclrtResetDevice"`
	GetCurrentContext   dl.Func `dl:"aclrtGetCurrentContext"`
	SetCurrentContext   dl.Func `dl:"aclrtSetCurrentContext"`
	GetMemInfo          dl.Func `dl:"aclrtGetMemInfo"`
	Malloc              dl.Func `dl:"aclrtMalloc"`
	Free                dl.Func `dl:"aclrtFree"`
	CreateStream        dl.Func `dl:"aclrtCreateStream"`
	DestroyStream       dl.Func `dl:"aclrtDestroyStream"`
	SynchronizeStream   dl.Func `dl:"aclrtSynchronizeStream"`
	MemcpyAsync         dl.Func `dl:"aclrtMemcpyAsync"`
	MemsetAsync         dl.Func `dl:"aclrtMemsetAsync"`
	DeviceCanAccessPeer dl.Func `dl:"aclrtDeviceCanAccessPeer,optional"`
	EnablePeerAccess    dl.Func `dl:"aclrtDeviceEnablePeerAccess,optional"`
	IPCGetExportKey     dl.Func `dl:"aclrtIpcMemGetExportKey,optional"`
	IPCImportByKey      dl.Func `dl:"aclrtIpcMemImportByKey,optional"`
	IPCClose            dl.Func `dl:"aclrtIpcMemClose,optional"`
	HostRegister        dl.Func `dl:"aclrtHostRegisterV2,optional"`
	HostUnregister      dl.Func `dl:"aclrtHostUnregister,optional"`
	GetRecentErrMsg     dl.Func `dl:"aclGetRecentErrMsg,optional"`
}

// Constants of CANN's headers.
const (
	aclErrorRepeatInitialize   = 100002
	aclErrorBadAlloc           = 200000
	aclErrorMemoryAllocation   = 207001
	aclErrorNoDevice           = 207004
	aclErrorDeviceOOM          = 207018
	aclErrorTSError            = 507001
	aclErrorLostHeartbeat      = 507010
	aclErrorDeviceMemError     = 507053
	aclErrorHBMMultiBitECC     = 507054
	aclErrorSocketClose        = 507901
	aclMemMallocHugeFirst      = 0
	aclMemcpyHostToDevice      = 1
	aclMemcpyDeviceToHost      = 2
	aclMemcpyDeviceToDevice    = 3
	aclDDRMem, aclHBMMem       = 0, 1
	aclHostRegPinned           = 0x10000000
	aclIPCDisablePIDValidation = 1
	aclIPCImportDefault        = 0
	aclKeySize                 = 65
	aclCopyAlign               = 64
	aclPage                    = 4096
)

// NewAscend returns the driver of Huawei's Ascend NPUs.
func NewAscend(opts Options) *Driver {
	return newDriver(family{
		name:   Ascend,
		vendor: "Ascend",
		library: dl.Library{
			Names: []string{"libascendcl.so", "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so"},
			Hint:  "install the Ascend driver and CANN, and source its set_env.sh",
		},
		check: "is the Ascend driver loaded (/dev/davinci_manager)?",
		adapt: adaptAscend,
	}, opts)
}

func adaptAscend(lib *dl.Handle) (*table, error) {
	a := &aclAPI{}
	if err := lib.Resolve(a); err != nil {
		return nil, fmt.Errorf("CANN 5.0 is needed: %w", err)
	}
	t := &table{align: aclCopyAlign, copyAlign: aclCopyAlign, codes: codes{
		name:        aclErrorName,
		outOfMemory: []int32{aclErrorBadAlloc, aclErrorMemoryAllocation, aclErrorDeviceOOM},
		fatal: []int32{
			aclErrorTSError, aclErrorLostHeartbeat, aclErrorDeviceMemError,
			aclErrorHBMMultiBitECC, aclErrorSocketClose,
		},
	}}
	if a.GetRecentErrMsg.Present() {
		t.codes.text = func(int32) string { return dl.String(a.GetRecentErrMsg.Call()) }
	}
	a.devices(t)
	a.memory(t)
	if dl.AllPresent(a.DeviceCanAccessPeer, a.EnablePeerAccess) {
		t.peer = a.peer(t)
	}
	if dl.AllPresent(a.IPCGetExportKey, a.IPCImportByKey, a.IPCClose) {
		t.ipc = a.ipc(t)
	}
	if dl.AllPresent(a.HostRegister, a.HostUnregister) && aclPinsAnyMemory() {
		t.pin = a.pin(t)
	}
	return t, nil
}

// aclErrorName returns the header's name of a code that a user is likely to encounter; the
// library provides no names.
func aclErrorName(code int32) string {
	return map[int32]string{
		100000:                   "ACL_ERROR_INVALID_PARAM",
		100001:                   "ACL_ERROR_UNINITIALIZE",
		107000:                   "ACL_ERROR_INVALID_PARAM",
		107001:                   "ACL_ERROR_RT_INVALID_DEVICEID",
		107002:                   "ACL_ERROR_RT_CONTEXT_NULL",
		107017:                   "ACL_ERROR_RT_INVALID_HANDLE",
		aclErrorBadAlloc:         "ACL_ERROR_BAD_ALLOC",
		aclErrorMemoryAllocation: "ACL_ERROR_RT_MEMORY_ALLOCATION",
		aclErrorNoDevice:         "ACL_ERROR_RT_NO_DEVICE",
		aclErrorDeviceOOM:        "ACL_ERROR_RT_DEVICE_OOM",
		aclErrorTSError:          "ACL_ERROR_RT_TS_ERROR",
		aclErrorLostHeartbeat:    "ACL_ERROR_RT_LOST_HEARTBEAT",
		aclErrorDeviceMemError:   "ACL_ERROR_RT_DEVICE_MEM_ERROR",
		aclErrorHBMMultiBitECC:   "ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR",
		507899:                   "ACL_ERROR_RT_DRV_INTERNAL_ERROR",
		aclErrorSocketClose:      "ACL_ERROR_RT_SOCKET_CLOSE",
	}[code]
}

func (a *aclAPI) devices(t *table) {
	check := t.codes.check
	t.init = func() error {
		r := a.Init.Call(0)
		if int32(r) == aclErrorRepeatInitialize {
			return nil
		}
		return check("aclInit", r)
	}
	t.count = func() (int, error) {
		n, err := ask[uint32](check, "aclrtGetDeviceCount", a.GetDeviceCount)
		return int(n), err
	}
	t.name = func(int) (string, error) { return dl.String(a.GetSocName.Call()), nil }
	if a.DeviceGetPCIBusID.Present() {
		t.pci = func(ordinal int) (string, error) {
			buf := make([]byte, 64)
			r := bytesSecond(a.DeviceGetPCIBusID, uintptr(ordinal), buf, uintptr(len(buf)))
			return dl.Text(buf), check("aclrtDeviceGetPCIBusId", r)
		}
	}
	if a.DeviceGetUUID.Present() {
		t.uuid = func(ordinal int) (string, error) {
			buf := make([]byte, 16)
			r := bytesSecond(a.DeviceGetUUID, uintptr(ordinal), buf)
			return "NPU-" + hex.EncodeToString(buf), check("aclrtDeviceGetUuid", r)
		}
	}
	t.acquire = func(ordinal int) (binding, error) {
		if err := check("aclrtSetDevice", a.SetDevice.Call(uintptr(ordinal))); err != nil {
			return binding{}, err
		}
		c, err := ask[uintptr](check, "aclrtGetCurrentContext", a.GetCurrentContext)
		return binding{ordinal: ordinal, handle: c}, err
	}
	t.release = func(b binding) error {
		return check("aclrtResetDevice", a.ResetDevice.Call(uintptr(b.ordinal)))
	}
	t.set = func(b binding) error { return check("aclrtSetCurrentContext", a.SetCurrentContext.Call(b.handle)) }
}

func (a *aclAPI) memory(t *table) {
	check := t.codes.check
	t.memory = func() (free, total devices.Size, err error) {
		x, y, r := outLast(a.GetMemInfo, aclHBMMem)
		if r != 0 || y == 0 { // a card with DDR memory has only that
			x, y, r = outLast(a.GetMemInfo, aclDDRMem)
		}
		return devices.Size(x), devices.Size(y), check("aclrtGetMemInfo", r)
	}
	t.alloc = func(n uint64) (address, error) {
		return ask[address](check, "aclrtMalloc", a.Malloc, uintptr(n), aclMemMallocHugeFirst)
	}
	t.free = func(p address) error { return check("aclrtFree", a.Free.Call(uintptr(p))) }
	t.newStream = func() (stream, error) { return ask[stream](check, "aclrtCreateStream", a.CreateStream) }
	t.endStream = func(s stream) error { return check("aclrtDestroyStream", a.DestroyStream.Call(uintptr(s))) }
	t.wait = func(s stream) error { return check("aclrtSynchronizeStream", a.SynchronizeStream.Call(uintptr(s))) }
	t.in = func(dst target, src []byte, s stream) error {
		r := bytesThird(a.MemcpyAsync, uintptr(dst.at), uintptr(dst.room), src,
			uintptr(len(src)), aclMemcpyHostToDevice, uintptr(s))
		return check("aclrtMemcpyAsync H2D", r)
	}
	t.out = func(dst []byte, src address, s stream) error {
		n := uintptr(len(dst))
		r := bytesFirst(a.MemcpyAsync, dst, n, uintptr(src), n, aclMemcpyDeviceToHost, uintptr(s))
		return check("aclrtMemcpyAsync D2H", r)
	}
	t.copy = func(dst target, src address, n uint64, s stream) error {
		return check("aclrtMemcpyAsync D2D", a.within(dst, src, n, s))
	}
	t.fill = func(dst target, value byte, n uint64, s stream) error {
		r := a.MemsetAsync.Call(uintptr(dst.at), uintptr(dst.room), uintptr(value), uintptr(n), uintptr(s))
		return check("aclrtMemsetAsync", r)
	}
}

// within copies inside a device and between two devices.
func (a *aclAPI) within(dst target, src address, n uint64, s stream) uintptr {
	return a.MemcpyAsync.Call(uintptr(dst.at), uintptr(dst.room), uintptr(src), uintptr(n),
		aclMemcpyDeviceToDevice, uintptr(s))
}

// peer enables access from each side: access is one-way, and the direction of a copy is not
// passed to the runtime.
func (a *aclAPI) peer(t *table) *peerTable {
	return &peerTable{
		mutual: true,
		can: func(worker, other binding) (bool, error) {
			can, err := ask[int32](t.codes.check, "aclrtDeviceCanAccessPeer", a.DeviceCanAccessPeer,
				uintptr(worker.ordinal), uintptr(other.ordinal))
			return can != 0, err
		},
		enable: func(other binding) error {
			return t.codes.check("aclrtDeviceEnablePeerAccess", a.EnablePeerAccess.Call(uintptr(other.ordinal), 0))
		},
		copy: func(dst target, _ binding, src address, _ binding, n uint64, s stream) error {
			return t.codes.check("aclrtMemcpyAsync peer", a.within(dst, src, n, s))
		},
	}
}

// ipc exports memory without a list of the processes that may open it, since they are not
// known. The key, of 64 characters, is what authorizes a process.
func (a *aclAPI) ipc(t *table) *ipcTable {
	end := func(key []byte) error {
		return t.codes.check("aclrtIpcMemClose", bytesFirst(a.IPCClose, key))
	}
	return &ipcTable{
		size: aclKeySize,
		export: func(p address, n uint64) ([]byte, error) {
			key := make([]byte, aclKeySize)
			r := bytesThird(a.IPCGetExportKey, uintptr(p), uintptr(n), key,
				uintptr(len(key)), aclIPCDisablePIDValidation)
			return key, t.codes.check("aclrtIpcMemGetExportKey", r)
		},
		unexport: end,
		open: func(key []byte) (address, error) {
			key[aclKeySize-1] = 0 // it is read as a C string
			p, r := outBytes(a.IPCImportByKey, key, aclIPCImportDefault)
			return address(p), t.codes.check("aclrtIpcMemImportByKey", r)
		},
		close: func(key []byte, _ address) error { return end(key) },
	}
}

// aclPinsAnyMemory reports whether the runtime may register memory that it has not
// allocated: with kernels up to 5.10 that is forbidden.
func aclPinsAnyMemory() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 5 || major == 5 && minor > 10)
}

func (a *aclAPI) pin(t *table) *pinTable {
	return &pinTable{
		align: aclPage,
		register: func(p []byte) error {
			r := bytesFirst(a.HostRegister, p, uintptr(len(p)), aclHostRegPinned)
			return t.codes.check("aclrtHostRegisterV2", r)
		},
		unregister: func(p []byte) error {
			return t.codes.check("aclrtHostUnregister", bytesFirst(a.HostUnregister, p))
		},
	}
}
