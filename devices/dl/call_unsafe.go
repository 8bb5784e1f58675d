package dl

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Func is the address of a C function. Zero means that the library does not have it;
// calling it then panics.
type Func uintptr

// Present reports whether the library has the function.
func (f Func) Present() bool { return f != 0 }

// AllPresent reports whether the library has all of the functions.
func AllPresent(all ...Func) bool { return !slices.Contains(all, 0) }

// Out calls f(&value, args...) with at most five more arguments, none of them a pointer,
// and returns the value that f has stored.
func Out[T any](f Func, args ...uintptr) (value T, result uintptr) {
	// A function ignores the words beyond its last parameter.
	var w [5]uintptr
	copy(w[:], args)
	result = f.Call(uintptr(unsafe.Pointer(&value)), w[0], w[1], w[2], w[3], w[4])
	return value, result
}

// Call calls the function with machine words as arguments: integers, and pointers converted
// in the argument list itself. A result narrower than a word, such as a C int, is in the
// low bits, and the other bits are undefined. Floating-point arguments are not supported.
//
//go:uintptrescapes
func (f Func) Call(args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(uintptr(f), args...)
	return r
}

// Bytes returns the n bytes at an address that a library returned. The memory must not be
// Go's, and must not be accessed once the library has freed it.
func Bytes(addr uintptr, n int) []byte {
	// Converting through a pointer to addr tells vet and checkptr that the address is not
	// one of Go's heap.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// String copies a C string that a library returned; "" for a null address.
func String(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// Text returns the text that a library has written into a buffer, up to the first zero.
func Text(p []byte) string {
	text, _, _ := bytes.Cut(p, []byte{0})
	return string(text)
}
