package cuda

import (
	"runtime"
	"unsafe"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
)

// code returns the result code in the low bits of a word.
func code(r uintptr) Code { return Code(int32(uint32(r))) } //nolint:gosec // the low half is the C int

// callForText calls cuGetErrorName or cuGetErrorString.
func callForText(ask dl.Func, c Code) string {
	var text uintptr
	if code(ask.Call(uintptr(c), uintptr(unsafe.Pointer(&text)))) != 0 {
		return ""
	}
	return dl.String(text)
}

func (a *api) init() error { return a.check("cuInit", code(a.Init.Call(0))) }

func (a *api) driverVersion() (int, error) {
	var v int32
	err := a.check("cuDriverGetVersion", code(a.DriverGetVersion.Call(uintptr(unsafe.Pointer(&v)))))
	return int(v), err
}

func (a *api) deviceCount() (int, error) {
	var n int32
	err := a.check("cuDeviceGetCount", code(a.DeviceGetCount.Call(uintptr(unsafe.Pointer(&n)))))
	return int(n), err
}

func (a *api) deviceGet(ordinal int) (cuDevice, error) {
	var d cuDevice
	err := a.check("cuDeviceGet", code(a.DeviceGet.Call(uintptr(unsafe.Pointer(&d)), uintptr(ordinal))))
	return d, err
}

func (a *api) deviceName(d cuDevice) (string, error) {
	var text [256]byte
	err := a.check("cuDeviceGetName",
		code(a.DeviceGetName.Call(uintptr(unsafe.Pointer(&text)), uintptr(len(text)), uintptr(d))))
	return dl.Text(text[:]), err
}

func (a *api) devicePCI(d cuDevice) (string, error) {
	var text [64]byte
	err := a.check("cuDeviceGetPCIBusId",
		code(a.DeviceGetPCIBusID.Call(uintptr(unsafe.Pointer(&text)), uintptr(len(text)), uintptr(d))))
	return dl.Text(text[:]), err
}

func (a *api) deviceTotal(d cuDevice) (devices.Size, error) {
	var n uint64
	err := a.check("cuDeviceTotalMem", code(a.DeviceTotalMem.Call(uintptr(unsafe.Pointer(&n)), uintptr(d))))
	return devices.Size(n), err
}

func (a *api) deviceUUID(ask dl.Func, d cuDevice) (uuid, error) {
	var u uuid
	err := a.check("cuDeviceGetUuid", code(ask.Call(uintptr(unsafe.Pointer(&u)), uintptr(d))))
	return u, err
}

func (a *api) deviceAttribute(attribute uintptr, d cuDevice) (int, error) {
	var v int32
	err := a.check("cuDeviceGetAttribute",
		code(a.DeviceGetAttribute.Call(uintptr(unsafe.Pointer(&v)), attribute, uintptr(d))))
	return int(v), err
}

func (a *api) canAccessPeer(d, peer cuDevice) (bool, error) {
	var v int32
	err := a.check("cuDeviceCanAccessPeer",
		code(a.DeviceCanAccessPeer.Call(uintptr(unsafe.Pointer(&v)), uintptr(d), uintptr(peer))))
	return v != 0, err
}

func (a *api) peerAttribute(attribute uintptr, d, peer cuDevice) (int, error) {
	var v int32
	err := a.check("cuDeviceGetP2PAttribute",
		code(a.P2PAttribute.Call(uintptr(unsafe.Pointer(&v)), attribute, uintptr(d), uintptr(peer))))
	return int(v), err
}

func (a *api) retain(d cuDevice) (cuContext, error) {
	var c cuContext
	err := a.check("cuDevicePrimaryCtxRetain",
		code(a.DevicePrimaryRetain.Call(uintptr(unsafe.Pointer(&c)), uintptr(d))))
	return c, err
}

func (a *api) release(d cuDevice) error {
	return a.check("cuDevicePrimaryCtxRelease", code(a.DevicePrimaryRelease.Call(uintptr(d))))
}

func (a *api) setCurrent(c cuContext) error {
	return a.check("cuCtxSetCurrent", code(a.CtxSetCurrent.Call(uintptr(c))))
}

func (a *api) enablePeer(c cuContext) error {
	return a.check("cuCtxEnablePeerAccess", code(a.EnablePeer.Call(uintptr(c), 0)))
}

func (a *api) createStream() (cuStream, error) {
	var s cuStream
	err := a.check("cuStreamCreate",
		code(a.StreamCreate.Call(uintptr(unsafe.Pointer(&s)), cuStreamNonBlocking)))
	return s, err
}

func (a *api) destroyStream(s cuStream) error {
	return a.check("cuStreamDestroy", code(a.StreamDestroy.Call(uintptr(s))))
}

func (a *api) synchronize(s cuStream) error {
	return a.check("cuStreamSynchronize", code(a.StreamSynchronize.Call(uintptr(s))))
}

// memInfo returns the memory that the card has left for all programs, in bytes.
func (a *api) memInfo() (devices.Size, error) {
	var free, total uint64
	err := a.check("cuMemGetInfo",
		code(a.MemGetInfo.Call(uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))))
	return devices.Size(free), err
}

func (a *api) alloc(n devices.Size) (address, error) {
	var p address
	err := a.check("cuMemAlloc", code(a.MemAlloc.Call(uintptr(unsafe.Pointer(&p)), uintptr(n))))
	return p, err
}

func (a *api) free(p address) error {
	return a.check("cuMemFree", code(a.MemFree.Call(uintptr(p))))
}

func (a *api) hostAlloc(n devices.Size) ([]byte, error) {
	var p uintptr
	err := a.check("cuMemHostAlloc",
		code(a.MemHostAlloc.Call(uintptr(unsafe.Pointer(&p)), uintptr(n), cuHostAllocPortable)))
	if err != nil {
		return nil, err
	}
	return dl.Bytes(p, int(n)), nil
}

func (a *api) freeHost(p []byte) error {
	return a.check("cuMemFreeHost", code(a.MemFreeHost.Call(hostAddress(p))))
}

// hostAddress returns the address of p, which must not be empty.
func hostAddress(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

func (a *api) hostRegister(p []byte) error {
	return a.check("cuMemHostRegister",
		code(a.MemHostRegister.Call(uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), cuHostRegisterPortable)))
}

func (a *api) hostUnregister(p []byte) error {
	return a.check("cuMemHostUnregister", code(a.MemHostUnregister.Call(uintptr(unsafe.Pointer(unsafe.SliceData(p))))))
}

// copyIn starts a copy from p, which must be pinned and must not be modified until the
// stream has been synchronized.
func (a *api) copyIn(s cuStream, dst address, p []byte) error {
	return a.check("cuMemcpyHtoDAsync",
		code(a.MemcpyHtoD.Call(uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(s))))
}

// copyOut starts a copy to p, which must be pinned and must not be accessed until then.
func (a *api) copyOut(s cuStream, p []byte, src address) error {
	return a.check("cuMemcpyDtoHAsync",
		code(a.MemcpyDtoH.Call(uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(src), uintptr(len(p)), uintptr(s))))
}

func (a *api) copyWithin(s cuStream, dst, src address, n devices.Size) error {
	return a.check("cuMemcpyDtoDAsync",
		code(a.MemcpyDtoD.Call(uintptr(dst), uintptr(src), uintptr(n), uintptr(s))))
}

// peerCopy is one copy between two contexts.
type peerCopy struct {
	dst, src address
	to, from cuContext
}

func (a *api) copyPeer(s cuStream, c peerCopy, n devices.Size) error {
	return a.check("cuMemcpyPeerAsync",
		code(a.MemcpyPeer.Call(uintptr(c.dst), uintptr(c.to), uintptr(c.src), uintptr(c.from), uintptr(n), uintptr(s))))
}

func (a *api) fill(s cuStream, dst address, value byte, n devices.Size) error {
	return a.check("cuMemsetD8Async",
		code(a.MemsetD8.Call(uintptr(dst), uintptr(value), uintptr(n), uintptr(s))))
}

// keep keeps p alive and in place until this call.
func keep(p []byte) { runtime.KeepAlive(unsafe.SliceData(p)) }
