package opencl

import (
	"bytes"
	"unsafe"
)

// platforms lists the installed drivers; none is no error.
func (a *api) platforms() ([]platformID, error) {
	var n uint32
	code := Code(a.GetPlatformIDs.Call(0, 0, uintptr(unsafe.Pointer(&n))))
	if code == codePlatformNotFound || code == codeSuccess && n == 0 {
		return nil, nil
	}
	if err := check("clGetPlatformIDs", code); err != nil {
		return nil, err
	}
	ids := make([]platformID, n)
	code = Code(a.GetPlatformIDs.Call(uintptr(n), uintptr(unsafe.Pointer(&ids[0])), uintptr(unsafe.Pointer(&n))))
	return ids[:min(int(n), len(ids))], check("clGetPlatformIDs", code)
}

// devicesOf lists the devices of a platform; none is no error.
func (a *api) devicesOf(p platformID) ([]deviceID, error) {
	var n uint32
	code := Code(a.GetDeviceIDs.Call(uintptr(p), clDeviceTypeAll, 0, 0, uintptr(unsafe.Pointer(&n))))
	if code == codeDeviceNotFound || code == codeSuccess && n == 0 {
		return nil, nil
	}
	if err := check("clGetDeviceIDs", code); err != nil {
		return nil, err
	}
	ids := make([]deviceID, n)
	code = Code(a.GetDeviceIDs.Call(uintptr(p), clDeviceTypeAll, uintptr(n), uintptr(unsafe.Pointer(&ids[0])), 0))
	return ids, check("clGetDeviceIDs", code)
}

// platformText reads a text property of a platform.
func (a *api) platformText(p platformID, param uintptr) (string, error) {
	var n uint64
	code := Code(a.GetPlatformInfo.Call(uintptr(p), param, 0, 0, uintptr(unsafe.Pointer(&n))))
	if code != codeSuccess || n == 0 {
		return "", check("clGetPlatformInfo", code)
	}
	text := make([]byte, n)
	code = Code(a.GetPlatformInfo.Call(uintptr(p), param, uintptr(n), uintptr(unsafe.Pointer(&text[0])), 0))
	return cText(text), check("clGetPlatformInfo", code)
}

// deviceText reads a text property of a device.
func (a *api) deviceText(d deviceID, param uintptr) (string, error) {
	var n uint64
	code := Code(a.GetDeviceInfo.Call(uintptr(d), param, 0, 0, uintptr(unsafe.Pointer(&n))))
	if code != codeSuccess || n == 0 {
		return "", check("clGetDeviceInfo", code)
	}
	text := make([]byte, n)
	code = Code(a.GetDeviceInfo.Call(uintptr(d), param, uintptr(n), uintptr(unsafe.Pointer(&text[0])), 0))
	return cText(text), check("clGetDeviceInfo", code)
}

// deviceUint reads a property that is a cl_uint or cl_bool.
func (a *api) deviceUint(d deviceID, param uintptr) (uint32, error) {
	var v uint32
	code := Code(a.GetDeviceInfo.Call(uintptr(d), param, unsafe.Sizeof(v), uintptr(unsafe.Pointer(&v)), 0))
	return v, check("clGetDeviceInfo", code)
}

// deviceUlong reads a property that is a cl_ulong, a bit field or a size_t.
func (a *api) deviceUlong(d deviceID, param uintptr) (uint64, error) {
	var v uint64
	code := Code(a.GetDeviceInfo.Call(uintptr(d), param, unsafe.Sizeof(v), uintptr(unsafe.Pointer(&v)), 0))
	return v, check("clGetDeviceInfo", code)
}

// devicePCI reads the bus address by cl_khr_pci_bus_info.
func (a *api) devicePCI(d deviceID) (pciBusInfo, error) {
	var v pciBusInfo
	code := Code(a.GetDeviceInfo.Call(uintptr(d), clDevicePCIBusInfo, unsafe.Sizeof(v), uintptr(unsafe.Pointer(&v)), 0))
	return v, check("clGetDeviceInfo", code)
}

// deviceSizes reads a property that is an array of size_t, at most two.
func (a *api) deviceSizes(d deviceID, param uintptr) ([2]uint64, error) {
	var v [2]uint64
	code := Code(a.GetDeviceInfo.Call(uintptr(d), param, unsafe.Sizeof(v), uintptr(unsafe.Pointer(&v)), 0))
	return v, check("clGetDeviceInfo", code)
}

// cText returns a C string without its terminator, trimmed.
func cText(p []byte) string {
	p, _, _ = bytes.Cut(p, []byte{0})
	return string(bytes.TrimSpace(p))
}
