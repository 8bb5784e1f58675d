package cudalike

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// musaAPI is the used part of libmusart. The names and their arguments are those
// of public users of the runtime (torch_musa, TileLang's loader of libmusart),
// which call it as CUDA's; the numbers of the errors are those of the enum
// musaError in public copies of its header, and the kinds of copies are CUDA's,
// as those users say. The vendor's header was not at hand.
//
// Memory is of musaMalloc, the card's own: registered host memory has a device
// address too, and is not what a user of the card means.
type musaAPI struct {
	GetDeviceCount      dl.Func     `dl:"musaGetDeviceCount"`
	GetDeviceProperties dl.Func     `dl:"musaGetDeviceProperties,optional"`
	GetPropertiesV2     dl.Func     `dl:"musaGetDeviceProperties_v2,optional"`
	DeviceGetPCIBusID   dl.Func     `dl:"musaDeviceGetPCIBusId,optional"`
	SetDevice           dl.Func     `dl:"musaSetDevice"`
	MemGetInfo          dl.Func     `dl:"musaMemGetInfo"`
	Malloc              dl.Func     `dl:"musaMalloc"`
	Free                dl.Func     `dl:"musaFree"`
	StreamCreate        dl.Func     `dl:"musaStreamCreateWithFlags"`
	StreamDestroy       dl.Func     `dl:"musaStreamDestroy"`
	StreamSynchronize   dl.Func     `dl:"musaStreamSynchronize"`
	MemcpyAsync         dl.Func     `dl:"musaMemcpyAsync"`
	MemsetAsync         dl.Func     `dl:"musaMemsetAsync"`
	CanAccessPeer       dl.Func     `dl:"musaDeviceCanAccessPeer,optional"`
	EnablePeerAccess    dl.Func     `dl:"musaDeviceEnablePeerAccess,optional"`
	MemcpyPeerAsync     dl.Func     `dl:"musaMemcpyPeerAsync,optional"`
	IPCGetMemHandle     dl.Func     `dl:"musaIpcGetMemHandle,optional"`
	IPCOpenMemHandle    openByValue `dl:"musaIpcOpenMemHandle,optional"`
	IPCCloseMemHandle   dl.Func     `dl:"musaIpcCloseMemHandle,optional"`
	HostRegister        dl.Func     `dl:"musaHostRegister,optional"`
	HostUnregister      dl.Func     `dl:"musaHostUnregister,optional"`
	GetErrorName        dl.Func     `dl:"musaGetErrorName"`
	GetErrorString      dl.Func     `dl:"musaGetErrorString"`
}

// The constants of MUSA's headers.
const (
	musaErrorMemoryAllocation         = 2
	musaErrorECCUncorrectable         = 214
	musaErrorMtlinkUncorrectable      = 220
	musaErrorIllegalAddress           = 700
	musaErrorLaunchTimeout            = 702
	musaErrorPeerAccessAlreadyEnabled = 704
	musaErrorContextIsDestroyed       = 709
	musaErrorAssert                   = 710
	musaErrorHardwareStackError       = 714
	musaErrorLaunchFailure            = 719
	musaStreamNonBlocking             = 1
	musaHostRegisterPortable          = 1
	musaIPCLazyEnablePeerAccess       = 1
	musaMemcpyHostToDevice            = 1
	musaMemcpyDeviceToHost            = 2
	musaMemcpyDeviceToDevice          = 3
	// musaProperties is more than any musaDeviceProp needs, in bytes. Only its
	// first field is read: the name, 256 characters.
	musaProperties = 8192
	musaNameSize   = 256
)

// NewMUSA makes the driver of Moore Threads' GPUs.
func NewMUSA(opts Options) *Driver {
	return newDriver(family{
		name:   MUSA,
		vendor: "Moore Threads",
		library: dl.Library{
			Names: []string{"libmusart.so.5", "libmusart.so.4", "libmusart.so", "/usr/local/musa/lib/libmusart.so"},
			Hint:  "install Moore Threads' driver and MUSA toolkit",
		},
		check: "is the mtgpu driver loaded?",
		adapt: adaptMUSA,
	}, opts)
}

func adaptMUSA(lib *dl.Handle) (*table, error) {
	a := &musaAPI{}
	if err := lib.Resolve(a); err != nil {
		return nil, fmt.Errorf("a MUSA runtime is needed: %w", err)
	}
	t := &table{codes: codes{
		name:        func(code int32) string { return dl.String(a.GetErrorName.Call(uintptr(code))) },
		text:        func(code int32) string { return dl.String(a.GetErrorString.Call(uintptr(code))) },
		outOfMemory: []int32{musaErrorMemoryAllocation},
		fatal: []int32{
			musaErrorECCUncorrectable, musaErrorMtlinkUncorrectable, musaErrorIllegalAddress,
			musaErrorLaunchTimeout, musaErrorContextIsDestroyed, musaErrorAssert,
			musaErrorHardwareStackError, 715, 716, 717, 718, musaErrorLaunchFailure,
		},
		peerEnabled: musaErrorPeerAccessAlreadyEnabled,
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

func (a *musaAPI) devices(t *table) {
	t.init = func() error { return nil }
	t.count = func() (int, error) {
		n, r := outFirst(a.GetDeviceCount)
		return int(int32(n)), t.codes.check("musaGetDeviceCount", r)
	}
	t.name = func(ordinal int) (string, error) {
		f := a.GetDeviceProperties
		if !f.Present() { // as newer headers name it
			f = a.GetPropertiesV2
		}
		if !f.Present() {
			return "Moore Threads GPU", nil
		}
		buf := make([]byte, musaProperties)
		r := bytesFirst(f, buf, uintptr(ordinal))
		return cString(buf[:musaNameSize]), t.codes.check("musaGetDeviceProperties", r)
	}
	if a.DeviceGetPCIBusID.Present() {
		t.pci = func(ordinal int) (string, error) {
			buf := make([]byte, 64)
			r := bytesFirst(a.DeviceGetPCIBusID, buf, uintptr(len(buf)), uintptr(ordinal))
			return cString(buf), t.codes.check("musaDeviceGetPCIBusId", r)
		}
	}
	t.set = func(b binding) error {
		return t.codes.check("musaSetDevice", a.SetDevice.Call(uintptr(b.ordinal)))
	}
	t.acquire = func(ordinal int) (binding, error) {
		b := binding{ordinal: ordinal}
		return b, t.set(b)
	}
	t.release = func(binding) error { return nil }
}

func (a *musaAPI) memory(t *table) {
	check := t.codes.check
	t.memory = func() (free, total uint64, err error) {
		x, y, r := outBoth(a.MemGetInfo)
		return uint64(x), uint64(y), check("musaMemGetInfo", r)
	}
	t.alloc = func(n uint64) (address, error) {
		p, r := outFirst(a.Malloc, uintptr(n))
		return address(p), check("musaMalloc", r)
	}
	t.free = func(p address) error { return check("musaFree", a.Free.Call(uintptr(p))) }
	t.newStream = func() (stream, error) {
		s, r := outFirst(a.StreamCreate, musaStreamNonBlocking)
		return stream(s), check("musaStreamCreateWithFlags", r)
	}
	t.endStream = func(s stream) error { return check("musaStreamDestroy", a.StreamDestroy.Call(uintptr(s))) }
	t.wait = func(s stream) error { return check("musaStreamSynchronize", a.StreamSynchronize.Call(uintptr(s))) }
	t.in = func(dst target, src []byte, s stream) error {
		r := bytesSecond(a.MemcpyAsync, uintptr(dst.at), src, uintptr(len(src)), musaMemcpyHostToDevice, uintptr(s))
		return check("musaMemcpyAsync H2D", r)
	}
	t.out = func(dst []byte, src address, s stream) error {
		r := bytesFirst(a.MemcpyAsync, dst, uintptr(src), uintptr(len(dst)), musaMemcpyDeviceToHost, uintptr(s))
		return check("musaMemcpyAsync D2H", r)
	}
	t.copy = func(dst target, src address, n uint64, s stream) error {
		r := a.MemcpyAsync.Call(uintptr(dst.at), uintptr(src), uintptr(n), musaMemcpyDeviceToDevice, uintptr(s))
		return check("musaMemcpyAsync D2D", r)
	}
	t.fill = func(dst target, value byte, n uint64, s stream) error {
		r := a.MemsetAsync.Call(uintptr(dst.at), uintptr(value), uintptr(n), uintptr(s))
		return check("musaMemsetAsync", r)
	}
}

func (a *musaAPI) peer(t *table) *peerTable {
	return &peerTable{
		can: func(worker, other binding) (bool, error) {
			can, r := outFirst(a.CanAccessPeer, uintptr(worker.ordinal), uintptr(other.ordinal))
			return int32(can) != 0, t.codes.check("musaDeviceCanAccessPeer", r)
		},
		enable: func(other binding) error {
			return t.codes.check("musaDeviceEnablePeerAccess", a.EnablePeerAccess.Call(uintptr(other.ordinal), 0))
		},
		copy: func(dst target, to binding, src address, from binding, n uint64, s stream) error {
			r := a.MemcpyPeerAsync.Call(uintptr(dst.at), uintptr(to.ordinal),
				uintptr(src), uintptr(from.ordinal), uintptr(n), uintptr(s))
			return t.codes.check("musaMemcpyPeerAsync", r)
		},
	}
}

// ipc has no extent: the runtime has no question for it.
func (a *musaAPI) ipc(t *table) *ipcTable {
	return &ipcTable{
		size: handleSize,
		export: func(p address, _ uint64) ([]byte, error) {
			handle := make([]byte, handleSize)
			r := bytesFirst(a.IPCGetMemHandle, handle, uintptr(p))
			return handle, t.codes.check("musaIpcGetMemHandle", r)
		},
		open: func(handle []byte) (address, error) {
			p, r := a.IPCOpenMemHandle.call(handle, musaIPCLazyEnablePeerAccess)
			return address(p), t.codes.check("musaIpcOpenMemHandle", uintptr(r))
		},
		close: func(_ []byte, p address) error {
			return t.codes.check("musaIpcCloseMemHandle", a.IPCCloseMemHandle.Call(uintptr(p)))
		},
	}
}

func (a *musaAPI) pin(t *table) *pinTable {
	return &pinTable{
		align: 1,
		register: func(p []byte) error {
			r := bytesFirst(a.HostRegister, p, uintptr(len(p)), musaHostRegisterPortable)
			return t.codes.check("musaHostRegister", r)
		},
		unregister: func(p []byte) error {
			return t.codes.check("musaHostUnregister", bytesFirst(a.HostUnregister, p))
		},
	}
}
