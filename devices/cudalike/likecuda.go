package cudalike

import (
	"github.com/hmcfs/hmcfs/devices/dl"
)

// prefixAPI contains the functions of a runtime that equals CUDA's except for the prefix:
// they have the parameters of the functions of the same name in CUDA's runtime.
type prefixAPI struct {
	// prefix begins the names of the vendor's functions.
	prefix string
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

	codes *codes
}

// Constants common to all such runtimes.
const (
	prefixStreamNonBlocking    = 1
	prefixHostRegisterPortable = 1
	prefixErrorInvalidValue    = 1
)

// adapt fills the table with the functions that exist.
func (a *prefixAPI) adapt(t *table) {
	a.codes = &t.codes
	t.codes.name = func(code int32) string { return dl.String(a.GetErrorName.Call(uintptr(code))) }
	t.codes.text = func(code int32) string { return dl.String(a.GetErrorString.Call(uintptr(code))) }
	a.devices(t)
	a.memory(t)
	if a.CanAccessPeer.Present() && a.EnablePeerAccess.Present() && a.MemcpyPeerAsync.Present() {
		t.peer = a.peer()
	}
	if a.IPCGetMemHandle.Present() && a.IPCOpenMemHandle != nil && a.IPCCloseMemHandle.Present() {
		t.ipc = a.ipc()
	}
	if a.HostRegister.Present() && a.HostUnregister.Present() {
		t.pin = a.pin()
	}
}

// check turns the result code of a call into an error; call is the name without the prefix.
func (a *prefixAPI) check(call string, result uintptr) error {
	if int32(result) == 0 {
		return nil
	}
	return a.codes.check(a.prefix+call, result)
}

func (a *prefixAPI) devices(t *table) {
	t.init = func() error { return nil }
	t.count = func() (int, error) {
		n, r := outFirst(a.GetDeviceCount)
		return int(int32(n)), a.check("GetDeviceCount", r)
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
	t.memory = func() (free, total uint64, err error) {
		x, y, r := outBoth(a.MemGetInfo)
		return uint64(x), uint64(y), a.check("MemGetInfo", r)
	}
	t.alloc = func(n uint64) (address, error) {
		p, r := outFirst(a.Malloc, uintptr(n))
		return address(p), a.check("Malloc", r)
	}
	t.free = func(p address) error { return a.check("Free", a.Free.Call(uintptr(p))) }
	t.newStream = func() (stream, error) {
		s, r := outFirst(a.StreamCreate, prefixStreamNonBlocking)
		return stream(s), a.check("StreamCreateWithFlags", r)
	}
	t.endStream = func(s stream) error { return a.check("StreamDestroy", a.StreamDestroy.Call(uintptr(s))) }
	t.wait = func(s stream) error { return a.check("StreamSynchronize", a.StreamSynchronize.Call(uintptr(s))) }
}

func (a *prefixAPI) peer() *peerTable {
	return &peerTable{
		can: func(worker, other binding) (bool, error) {
			can, r := outFirst(a.CanAccessPeer, uintptr(worker.ordinal), uintptr(other.ordinal))
			return int32(can) != 0, a.check("DeviceCanAccessPeer", r)
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
