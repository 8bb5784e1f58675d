package opencl

import (
	"strings"
	"unsafe"

	"github.com/hmcfs/hmcfs/devices/dl"
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

// text reads a text property of a platform or device by f, the function call.
func text(call string, f dl.Func, id, param uintptr) (string, error) {
	var n uint64
	code := Code(f.Call(id, param, 0, 0, uintptr(unsafe.Pointer(&n))))
	if code != codeSuccess || n == 0 {
		return "", check(call, code)
	}
	p := make([]byte, n)
	code = Code(f.Call(id, param, uintptr(n), uintptr(unsafe.Pointer(&p[0])), 0))
	return cText(p), check(call, code)
}

// deviceValue reads a property of a device that is a cl_uint or cl_bool (uint32), a
// cl_ulong, a bit field or a size_t (uint64), a structure, or an array of at most as many
// elements as T has.
func deviceValue[T any](a *api, d deviceID, param uintptr) (v T, err error) {
	code := Code(a.GetDeviceInfo.Call(uintptr(d), param, unsafe.Sizeof(v), uintptr(unsafe.Pointer(&v)), 0))
	return v, check("clGetDeviceInfo", code)
}

// cText returns a C string without its terminator, trimmed.
func cText(p []byte) string { return strings.TrimSpace(dl.Text(p)) }
