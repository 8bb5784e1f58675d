package cudalike

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
)

// prefixAPI contains the functions of a runtime that equals CUDA's except for the prefix:
// they have the parameters of the functions of the same name in CUDA's runtime.
type prefixAPI struct {
	// lazyPeer lists the flags to open a handle with, in the order in which they are tried:
	// each is the only value that some version of the library accepts.
	lazyPeer []uint32

	GetDeviceCount    dl.Func     `dl:"GetDeviceCount"`
	SetDevice         dl.Func     `dl:"SetDevice"`
	DeviceGetPCIBusID dl.Func     `dl:"DeviceGetPCIBusId,optional"`
	MemGetInfo        dl.Func     `dl:"MemGetInfo"`
	Malloc            dl.Func     `dl:"Malloc"`
	Free              dl.Func     `dl:"Free"`
	StreamCreate      dl.Func     `dl:"StreamCreateWithFlags"`
	StreamDestroy     dl.Func     `dl:"StreamDestroy"`
	StreamSynchronize dl.Func     `dl:"StreamSynchronize"`
	CanAccessPeer     dl.Func     `dl:"DeviceCanAccessPeer,optional"`
	EnablePeerAccess  dl.Func     `dl:"DeviceEnablePeerAccess,optional"`
	MemcpyPeerAsync   dl.Func     `dl:"MemcpyPeerAsync,optional"`
	IPCGetMemHandle   dl.Func     `dl:"IpcGetMemHandle,optional"`
	IPCOpenMemHandle  openByValue `dl:"IpcOpenMemHandle,optional"`
	IPCCloseMemHandle dl.Func     `dl:"IpcCloseMemHandle,optional"`
	HostRegister      dl.Func     `dl:"HostRegister,optional"`
	HostUnregister    dl.Func     `dl:"HostUnregister,optional"`
	GetErrorName      dl.Func     `dl:"GetErrorName"`
	GetErrorString    dl.Func     `dl:"GetErrorString"`

	// check is that of the table's codes.
	check func(call string, result uintptr) error
}

// Constants common to all such runtimes, with CUDA's names after its prefix.
const (
	prefixStreamNonBlocking        = 1
	prefixHostRegisterPortable     = 1
	prefixErrorInvalidValue        = 1
	prefixErrorMemoryAllocation    = 2
	prefixErrorECCUncorrectable    = 214
	prefixErrorIllegalAddress      = 700
	prefixErrorLaunchTimeout       = 702
	prefixErrorPeerAccessAlreadyOn = 704
	prefixErrorContextIsDestroyed  = 709
	prefixErrorAssert              = 710
	prefixErrorLaunchFailure       = 719
)

// copyAPI contains the copy functions of a runtime that names them like CUDA's driver
// interface, after a prefix: one for each direction.
type copyAPI struct {
	MemcpyHtoDAsync dl.Func `dl:"MemcpyHtoDAsync"`
	MemcpyDtoHAsync dl.Func `dl:"MemcpyDtoHAsync"`
	MemcpyDtoDAsync dl.Func `dl:"MemcpyDtoDAsync"`
	MemsetD8Async   dl.Func `dl:"MemsetD8Async"`
}

// copies fills in the copy functions.
func (a *copyAPI) copies(t *table) {
	check := t.codes.check
	t.in = func(dst target, src []byte, s stream) error {
		r := bytesSecond(a.MemcpyHtoDAsync, uintptr(dst.at), src, uintptr(len(src)), uintptr(s))
		return check("MemcpyHtoDAsync", r)
	}
	t.out = func(dst []byte, src address, s stream) error {
		r := bytesFirst(a.MemcpyDtoHAsync, dst, uintptr(src), uintptr(len(dst)), uintptr(s))
		return check("MemcpyDtoHAsync", r)
	}
	t.copy = func(dst target, src address, n uint64, s stream) error {
		r := a.MemcpyDtoDAsync.Call(uintptr(dst.at), uintptr(src), uintptr(n), uintptr(s))
		return check("MemcpyDtoDAsync", r)
	}
	t.fill = func(dst target, value byte, n uint64, s stream) error {
		r := a.MemsetD8Async.Call(uintptr(dst.at), uintptr(value), uintptr(n), uintptr(s))
		return check("MemsetD8Async", r)
	}
}

// adapt returns a table of the functions that exist. prefix begins the names of the vendor's
// functions, and fatal lists the vendor's fatal codes besides the common ones.
func (a *prefixAPI) adapt(prefix string, fatal ...int32) *table {
	t := &table{codes: codes{
		prefix:      prefix,
		name:        func(code int32) string { return dl.String(a.GetErrorName.Call(uintptr(code))) },
		text:        func(code int32) string { return dl.String(a.GetErrorString.Call(uintptr(code))) },
		outOfMemory: []int32{prefixErrorMemoryAllocation},
		fatal: append(fatal, prefixErrorECCUncorrectable, prefixErrorIllegalAddress, prefixErrorLaunchTimeout,
			prefixErrorContextIsDestroyed, prefixErrorAssert, prefixErrorLaunchFailure),
		peerEnabled: prefixErrorPeerAccessAlreadyOn,
	}}
	a.check = t.codes.check
	a.devices(t)
	a.memory(t)
	if dl.AllPresent(a.CanAccessPeer, a.EnablePeerAccess, a.MemcpyPeerAsync) {
		t.peer = a.peer()
	}
	if dl.AllPresent(a.IPCGetMemHandle, a.IPCCloseMemHandle) && a.IPCOpenMemHandle != nil {
		t.ipc = a.ipc()
	}
	if dl.AllPresent(a.HostRegister, a.HostUnregister) {
		t.pin = a.pin()
	}
	return t
}

func (a *prefixAPI) devices(t *table) {
	t.init = func() error { return nil }
	t.count = func() (int, error) {
		n, err := ask[int32](a.check, "GetDeviceCount", a.GetDeviceCount)
		return int(n), err
	}
	if a.DeviceGetPCIBusID.Present() {
		t.pci = func(ordinal int) (string, error) {
			buf := make([]byte, 64)
			r := bytesFirst(a.DeviceGetPCIBusID, buf, uintptr(len(buf)), uintptr(ordinal))
			return dl.Text(buf), a.check("DeviceGetPCIBusId", r)
		}
	}
	t.set = func(b binding) error { return a.check("SetDevice", a.SetDevice.Call(uintptr(b.ordinal))) }
	t.acquire = func(ordinal int) (binding, error) {
		b := binding{ordinal: ordinal}
		return b, t.set(b)
	}
	t.release = func(binding) error { return nil }
}

// memory fills in all memory functions but those that copy and fill.
func (a *prefixAPI) memory(t *table) {
	t.memory = func() (free, total devices.Size, err error) {
		x, y, r := outBoth(a.MemGetInfo)
		return devices.Size(x), devices.Size(y), a.check("MemGetInfo", r)
	}
	t.alloc = func(n uint64) (address, error) {
		return ask[address](a.check, "Malloc", a.Malloc, uintptr(n))
	}
	t.free = func(p address) error { return a.check("Free", a.Free.Call(uintptr(p))) }
	t.newStream = func() (stream, error) {
		return ask[stream](a.check, "StreamCreateWithFlags", a.StreamCreate, prefixStreamNonBlocking)
	}
	t.endStream = func(s stream) error { return a.check("StreamDestroy", a.StreamDestroy.Call(uintptr(s))) }
	t.wait = func(s stream) error { return a.check("StreamSynchronize", a.StreamSynchronize.Call(uintptr(s))) }
}

func (a *prefixAPI) peer() *peerTable {
	return &peerTable{
		can: func(worker, other binding) (bool, error) {
			can, err := ask[int32](a.check, "DeviceCanAccessPeer", a.CanAccessPeer, uintptr(worker.ordinal), uintptr(other.ordinal))
			return can != 0, err
		},
		enable: func(other binding) error {
			return a.check("DeviceEnablePeerAccess", a.EnablePeerAccess.Call(uintptr(other.ordinal), 0))
		},
		copy: func(dst target, to binding, src address, from binding, n uint64, s stream) error {
			r := a.MemcpyPeerAsync.Call(uintptr(dst.at), uintptr(to.ordinal),
				uintptr(src), uintptr(from.ordinal), uintptr(n), uintptr(s))
			return a.check("MemcpyPeerAsync", r)
		},
	}
}

// ipc sets no extent: no function for it is common to all these runtimes.
func (a *prefixAPI) ipc() *ipcTable {
	return &ipcTable{
		size: handleSize,
		export: func(p address, _ uint64) ([]byte, error) {
			handle := make([]byte, handleSize)
			r := bytesFirst(a.IPCGetMemHandle, handle, uintptr(p))
			return handle, a.check("IpcGetMemHandle", r)
		},
		open: func(handle []byte) (address, error) {
			var p uintptr
			r := int32(prefixErrorInvalidValue)
			for _, flags := range a.lazyPeer {
				if r == prefixErrorInvalidValue {
					p, r = a.IPCOpenMemHandle.call(handle, flags)
				}
			}
			return address(p), a.check("IpcOpenMemHandle", uintptr(r))
		},
		close: func(_ []byte, p address) error {
			return a.check("IpcCloseMemHandle", a.IPCCloseMemHandle.Call(uintptr(p)))
		},
	}
}

func (a *prefixAPI) pin() *pinTable {
	return &pinTable{
		align: 1,
		register: func(p []byte) error {
			r := bytesFirst(a.HostRegister, p, uintptr(len(p)), prefixHostRegisterPortable)
			return a.check("HostRegister", r)
		},
		unregister: func(p []byte) error { return a.check("HostUnregister", bytesFirst(a.HostUnregister, p)) },
	}
}
