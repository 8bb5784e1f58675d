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

// ask calls f(&value, args...), and returns the value; dl.Out restricts the arguments.
func ask[T any](a *api, call string, f dl.Func, args ...uintptr) (T, error) {
	value, r := dl.Out[T](f, args...)
	return value, a.check(call, code(r))
}

// deviceText calls f(text, its size, d).
func (a *api) deviceText(call string, f dl.Func, d cuDevice) (string, error) {
	var text [256]byte
	err := a.check(call, code(f.Call(uintptr(unsafe.Pointer(&text)), uintptr(len(text)), uintptr(d))))
	return dl.Text(text[:]), err
}

func (a *api) deviceUUID(f dl.Func, d cuDevice) (uuid, error) {
	return ask[uuid](a, "cuDeviceGetUuid", f, uintptr(d))
}

func (a *api) canAccessPeer(d, peer cuDevice) (bool, error) {
	v, err := ask[int32](a, "cuDeviceCanAccessPeer", a.DeviceCanAccessPeer, uintptr(d), uintptr(peer))
	return v != 0, err
}

func (a *api) retain(d cuDevice) (cuContext, error) {
	return ask[cuContext](a, "cuDevicePrimaryCtxRetain", a.DevicePrimaryRetain, uintptr(d))
}

func (a *api) release(d cuDevice) error {
	return a.check("cuDevicePrimaryCtxRelease", code(a.DevicePrimaryRelease.Call(uintptr(d))))
}

func (a *api) createStream() (cuStream, error) {
	return ask[cuStream](a, "cuStreamCreate", a.StreamCreate, cuStreamNonBlocking)
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
	return ask[address](a, "cuMemAlloc", a.MemAlloc, uintptr(n))
}

func (a *api) free(p address) error {
	return a.check("cuMemFree", code(a.MemFree.Call(uintptr(p))))
}

func (a *api) hostAlloc(n devices.Size) ([]byte, error) {
	p, err := ask[uintptr](a, "cuMemHostAlloc", a.MemHostAlloc, uintptr(n), cuHostAllocPortable)
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
