package cudalike

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
)

// cnAPI contains the used functions of libcndrv, Cambricon's driver interface. Signatures
// and constants are those of cn_api.h in public copies of the CNToolkit.
//
// A thread works with a context. Each device's shared context is used, as in the vendor's
// own runtime, so that memory can be passed to and from programs that use that runtime. A
// copy between two devices belongs to the context and the queue of its source. Host memory
// can only be allocated page-locked (cnMallocHost), existing memory can't be locked, so
// there is no pinning.
type cnAPI struct {
	copyAPI
	Init                 dl.Func `dl:"cnInit"`
	DeviceGetCount       dl.Func `dl:"cnDeviceGetCount"`
	DeviceGet            dl.Func `dl:"cnDeviceGet"`
	DeviceGetName        dl.Func `dl:"cnDeviceGetName"`
	DeviceGetPCIBusID    dl.Func `dl:"cnDeviceGetPCIBusId"`
	DeviceGetUUIDStr     dl.Func `dl:"cnDeviceGetUuidStr,optional"`
	SharedContextAcquire dl.Func `dl:"cnSharedContextAcquire"`
	SharedContextRelease dl.Func `dl:"cnSharedContextRelease"`
	CtxSetCurrent        dl.Func `dl:"cnCtxSetCurrent"`
	MemGetInfo           dl.Func `dl:"cnMemGetInfo"`
	Malloc               dl.Func `dl:"cnMalloc"`
	Free                 dl.Func `dl:"cnFree"`
	CreateQueue          dl.Func `dl:"cnCreateQueue"`
	DestroyQueue         dl.Func `dl:"cnDestroyQueue"`
	QueueSync            dl.Func `dl:"cnQueueSync"`
	DeviceCanPeerAble    dl.Func `dl:"cnDeviceCanPeerAble,optional"`
	MemcpyPeerAsync      dl.Func `dl:"cnMemcpyPeerAsync,optional"`
	IPCGetMemHandle      dl.Func `dl:"cnIpcGetMemHandle,optional"`
	IPCOpenMemHandle     dl.Func `dl:"cnIpcOpenMemHandle,optional"`
	IPCCloseMemHandle    dl.Func `dl:"cnIpcCloseMemHandle,optional"`
	MemGetAddressRange   dl.Func `dl:"cnMemGetAddressRange,optional"`
	GetErrorName         dl.Func `dl:"cnGetErrorName"`
	GetErrorString       dl.Func `dl:"cnGetErrorString"`
}

// Constants of cn_api.h.
const (
	cnErrorDeinitialized            = 100003
	cnErrorECCUncorrectable         = 100016
	cnMemoryErrorOutOfMemory        = 100100
	cnMemoryErrorOutOfProcess       = 100101
	cnInvokeErrorExecutedTimeout    = 100121
	cnInvokeErrorIllegalInstruction = 100123
	cnInvokeErrorAddressSpace       = 100124
	cnInvokeErrorInvalidPC          = 100126
	cnInvokeErrorIllegalOperand     = 100127
	cnInvokeErrorAssert             = 100128
	cnInvokeErrorMisalignedAddress  = 100130
	cnInvokeErrorIllegalAddress     = 100131
	cnInvokeErrorKernelTrap         = 100132
	cnInvokeErrorKernelUserTrap     = 100133
	cnInvokeErrorOutOfRangeAddress  = 100135
	cnInvokeError                   = 100200
	cnIPCMemDefault                 = 0
	cnQueueDefault                  = 0
	cnTextSize                      = 256
	cnHandleSize                    = 8 // CNIpcMemHandle is a pointer valid in every process
)

// NewCambricon returns the driver of Cambricon's MLUs.
func NewCambricon(opts Options) *Driver {
	return newDriver(family{
		name:   Cambricon,
		vendor: "Cambricon",
		library: dl.Library{
			Names: []string{"libcndrv.so", "libcndrv.so.3", "libcndrv.so.2", "/usr/local/neuware/lib64/libcndrv.so"},
			Hint:  "install Cambricon's driver and CNToolkit",
		},
		check: "is the cambricon driver loaded (/dev/cambricon_ctl)?",
		adapt: adaptCambricon,
	}, opts)
}

func adaptCambricon(lib *dl.Handle) (*table, error) {
	a := &cnAPI{}
	if err := errors.Join(lib.Resolve(a), lib.ResolvePrefix("cn", &a.copyAPI)); err != nil {
		return nil, fmt.Errorf("CNToolkit 3.0 is needed: %w", err)
	}
	text := func(f dl.Func) func(int32) string {
		return func(code int32) string {
			p, _ := outSecond(f, uintptr(code))
			return dl.String(p)
		}
	}
	t := &table{codes: codes{
		prefix:      "cn",
		name:        text(a.GetErrorName),
		text:        text(a.GetErrorString),
		outOfMemory: []int32{cnMemoryErrorOutOfMemory, cnMemoryErrorOutOfProcess},
		fatal: []int32{
			cnErrorDeinitialized, cnErrorECCUncorrectable, cnInvokeErrorExecutedTimeout,
			cnInvokeErrorIllegalInstruction, cnInvokeErrorAddressSpace, cnInvokeErrorInvalidPC,
			cnInvokeErrorIllegalOperand, cnInvokeErrorAssert, cnInvokeErrorMisalignedAddress,
			cnInvokeErrorIllegalAddress, cnInvokeErrorKernelTrap, cnInvokeErrorKernelUserTrap,
			cnInvokeErrorOutOfRangeAddress, cnInvokeError,
		},
	}}
	a.devices(t)
	a.memory(t)
	if dl.AllPresent(a.DeviceCanPeerAble, a.MemcpyPeerAsync) {
		t.peer = a.peer(t)
	}
	if dl.AllPresent(a.IPCGetMemHandle, a.IPCOpenMemHandle, a.IPCCloseMemHandle) {
		t.ipc = a.ipc(t)
	}
	return t, nil
}

// device returns the vendor's handle of a device.
func (a *cnAPI) device(t *table, ordinal int) (uintptr, error) {
	return ask[uintptr](t.codes.check, "DeviceGet", a.DeviceGet, uintptr(ordinal))
}

// text returns a function that queries a device for a text of at most n bytes.
func (a *cnAPI) text(t *table, call string, f dl.Func, n int) func(ordinal int) (string, error) {
	return func(ordinal int) (string, error) {
		dev, err := a.device(t, ordinal)
		if err != nil {
			return "", err
		}
		buf := make([]byte, n)
		r := bytesFirst(f, buf, uintptr(n), dev)
		return dl.Text(buf), t.codes.check(call, r)
	}
}

func (a *cnAPI) devices(t *table) {
	check := t.codes.check
	t.init = func() error { return check("Init", a.Init.Call(0)) }
	t.count = func() (int, error) {
		n, err := ask[int32](check, "DeviceGetCount", a.DeviceGetCount)
		return int(n), err
	}
	t.name = a.text(t, "DeviceGetName", a.DeviceGetName, cnTextSize)
	t.pci = a.text(t, "DeviceGetPCIBusId", a.DeviceGetPCIBusID, cnTextSize)
	if a.DeviceGetUUIDStr.Present() {
		t.uuid = a.text(t, "DeviceGetUuidStr", a.DeviceGetUUIDStr, cnTextSize)
	}
	t.acquire = func(ordinal int) (binding, error) {
		dev, err := a.device(t, ordinal)
		if err != nil {
			return binding{}, err
		}
		c, err := ask[uintptr](check, "SharedContextAcquire", a.SharedContextAcquire, dev)
		return binding{ordinal: ordinal, handle: c}, err
	}
	t.release = func(b binding) error {
		dev, err := a.device(t, b.ordinal)
		if err != nil {
			return err
		}
		return check("SharedContextRelease", a.SharedContextRelease.Call(dev))
	}
	t.set = func(b binding) error { return check("CtxSetCurrent", a.CtxSetCurrent.Call(b.handle)) }
}

func (a *cnAPI) memory(t *table) {
	check := t.codes.check
	t.memory = func() (free, total devices.Size, err error) {
		x, y, r := outBoth(a.MemGetInfo)
		return devices.Size(x), devices.Size(y), check("MemGetInfo", r)
	}
	t.alloc = func(n uint64) (address, error) {
		return ask[address](check, "Malloc", a.Malloc, uintptr(n))
	}
	t.free = func(p address) error { return check("Free", a.Free.Call(uintptr(p))) }
	t.newStream = func() (stream, error) {
		return ask[stream](check, "CreateQueue", a.CreateQueue, cnQueueDefault)
	}
	t.endStream = func(s stream) error { return check("DestroyQueue", a.DestroyQueue.Call(uintptr(s))) }
	t.wait = func(s stream) error { return check("QueueSync", a.QueueSync.Call(uintptr(s))) }
	a.copies(t)
}

func (a *cnAPI) peer(t *table) *peerTable {
	return &peerTable{
		onSource: true,
		can: func(worker, other binding) (bool, error) {
			src, err := a.device(t, worker.ordinal)
			if err != nil {
				return false, err
			}
			dst, err := a.device(t, other.ordinal)
			if err != nil {
				return false, err
			}
			can, err := ask[int32](t.codes.check, "DeviceCanPeerAble", a.DeviceCanPeerAble, src, dst)
			return can != 0, err
		},
		copy: func(dst target, to binding, src address, from binding, n uint64, s stream) error {
			r := a.MemcpyPeerAsync.Call(uintptr(dst.at), to.handle, uintptr(src), from.handle, uintptr(n), uintptr(s))
			return t.codes.check("MemcpyPeerAsync", r)
		},
	}
}

func (a *cnAPI) ipc(t *table) *ipcTable {
	x := &ipcTable{
		size: cnHandleSize,
		export: func(p address, _ uint64) ([]byte, error) {
			h, err := ask[uint64](t.codes.check, "IpcGetMemHandle", a.IPCGetMemHandle, uintptr(p))
			return binary.NativeEndian.AppendUint64(nil, h), err
		},
		open: func(handle []byte) (address, error) {
			h := uintptr(binary.NativeEndian.Uint64(handle))
			return ask[address](t.codes.check, "IpcOpenMemHandle", a.IPCOpenMemHandle, h, cnIPCMemDefault)
		},
		close: func(_ []byte, p address) error {
			return t.codes.check("IpcCloseMemHandle", a.IPCCloseMemHandle.Call(uintptr(p)))
		},
	}
	if a.MemGetAddressRange.Present() {
		x.extent = func(p address) (uint64, error) {
			_, n, r := outBoth(a.MemGetAddressRange, uintptr(p))
			return uint64(n), t.codes.check("MemGetAddressRange", r)
		}
	}
	return x
}
