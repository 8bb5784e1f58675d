package vendor

import (
	"runtime"
	"unsafe"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// The shapes of calls that the runtimes have, by where Go's memory stands
// among the arguments. Words behind the last that a function takes are not
// looked at by it.

// outFirst calls f(&word, a, b).
func outFirst(f dl.Func, a, b uintptr) (word, result uintptr) {
	result = f.Call(uintptr(unsafe.Pointer(&word)), a, b)
	return word, result
}

// outSecond calls f(a, &word).
func outSecond(f dl.Func, a uintptr) (word, result uintptr) {
	result = f.Call(a, uintptr(unsafe.Pointer(&word)))
	return word, result
}

// outBoth calls f(&first, &second, a).
func outBoth(f dl.Func, a uintptr) (first, second, result uintptr) {
	result = f.Call(uintptr(unsafe.Pointer(&first)), uintptr(unsafe.Pointer(&second)), a)
	return first, second, result
}

// outLast calls f(a, &first, &second).
func outLast(f dl.Func, a uintptr) (first, second, result uintptr) {
	result = f.Call(a, uintptr(unsafe.Pointer(&first)), uintptr(unsafe.Pointer(&second)))
	return first, second, result
}

// bytesFirst calls f(p, a, b, c, d).
func bytesFirst(f dl.Func, p []byte, a, b, c, d uintptr) (result uintptr) {
	result = f.Call(uintptr(unsafe.Pointer(unsafe.SliceData(p))), a, b, c, d)
	runtime.KeepAlive(p)
	return result
}

// bytesSecond calls f(a, p, b, c).
func bytesSecond(f dl.Func, a uintptr, p []byte, b, c uintptr) (result uintptr) {
	result = f.Call(a, uintptr(unsafe.Pointer(unsafe.SliceData(p))), b, c)
	runtime.KeepAlive(p)
	return result
}

// bytesThird calls f(a, b, p, c, d, e).
func bytesThird(f dl.Func, a, b uintptr, p []byte, c, d, e uintptr) (result uintptr) {
	result = f.Call(a, b, uintptr(unsafe.Pointer(unsafe.SliceData(p))), c, d, e)
	runtime.KeepAlive(p)
	return result
}

// outBytes calls f(&word, p, a).
func outBytes(f dl.Func, p []byte, a uintptr) (word, result uintptr) {
	result = f.Call(uintptr(unsafe.Pointer(&word)), uintptr(unsafe.Pointer(unsafe.SliceData(p))), a)
	runtime.KeepAlive(p)
	return word, result
}

// handleSize is how long the handles of HIP and MUSA are, in bytes.
const handleSize = 64

// openByValue calls f(&word, handle, flags), where the handle is a structure
// that C passes by value: on the stack, behind all words in registers, on
// x86-64, and as the address of a copy on arm64.
func openByValue(f dl.Func, handle []byte, flags uintptr) (word, result uintptr) {
	if runtime.GOARCH == "arm64" {
		value := [handleSize]byte(handle)
		result = f.Call(uintptr(unsafe.Pointer(&word)), uintptr(unsafe.Pointer(&value)), flags)
		return word, result
	}
	v := *(*[handleSize / 8]uintptr)(unsafe.Pointer(unsafe.SliceData(handle)))
	result = f.Call(uintptr(unsafe.Pointer(&word)), flags, 0, 0, 0, 0,
		v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
	return word, result
}

// addressOf is where p lies in the host's memory.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
