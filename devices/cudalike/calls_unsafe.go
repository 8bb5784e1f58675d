package cudalike

import (
	"unsafe"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// words are the arguments that follow Go's memory in a call. The calls of the runtimes
// differ in the position of that memory, hence the functions below and dl.Out. A function ignores the
// words beyond its last parameter.
type words [5]uintptr

func from(args []uintptr) (w words) {
	copy(w[:], args)
	return w
}

// outSecond calls f(a, &word).
func outSecond(f dl.Func, a uintptr) (word, result uintptr) {
	result = f.Call(a, uintptr(unsafe.Pointer(&word)))
	return word, result
}

// outBoth calls f(&first, &second, …).
func outBoth(f dl.Func, args ...uintptr) (first, second, result uintptr) {
	w := from(args)
	result = f.Call(uintptr(unsafe.Pointer(&first)), uintptr(unsafe.Pointer(&second)), w[0], w[1], w[2])
	return first, second, result
}

// outLast calls f(a, &first, &second).
func outLast(f dl.Func, a uintptr) (first, second, result uintptr) {
	result = f.Call(a, uintptr(unsafe.Pointer(&first)), uintptr(unsafe.Pointer(&second)))
	return first, second, result
}

// bytesFirst calls f(p, …).
func bytesFirst(f dl.Func, p []byte, args ...uintptr) (result uintptr) {
	w := from(args)
	return f.Call(uintptr(unsafe.Pointer(unsafe.SliceData(p))), w[0], w[1], w[2], w[3], w[4])
}

// bytesSecond calls f(a, p, …).
func bytesSecond(f dl.Func, a uintptr, p []byte, args ...uintptr) (result uintptr) {
	w := from(args)
	return f.Call(a, uintptr(unsafe.Pointer(unsafe.SliceData(p))), w[0], w[1], w[2], w[3])
}

// bytesThird calls f(a, b, p, …).
func bytesThird(f dl.Func, a, b uintptr, p []byte, args ...uintptr) (result uintptr) {
	w := from(args)
	return f.Call(a, b, uintptr(unsafe.Pointer(unsafe.SliceData(p))), w[0], w[1], w[2])
}

// outBytes calls f(&word, p, …).
func outBytes(f dl.Func, p []byte, args ...uintptr) (word, result uintptr) {
	w := from(args)
	result = f.Call(uintptr(unsafe.Pointer(&word)), uintptr(unsafe.Pointer(unsafe.SliceData(p))), w[0], w[1])
	return word, result
}

// addressOf returns the host address of p.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
