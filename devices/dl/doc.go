// Package dl opens the vendors' libraries at run time, so that one Go binary serves every
// vendor and starts on a machine that has none of the libraries.
//
// A family declares the functions that it needs as a struct, its function table, and has it
// filled:
//
//	type api struct {
//		Init   dl.Func `dl:"cuInit"`
//		Export dl.Func `dl:"cuMemExportToShareableHandle,optional"`
//	}
//
//	lib, err := dl.Open(dl.Library{
//		Names: []string{"libcuda.so.1", "libcuda.so"},
//		Hint:  "install the NVIDIA driver",
//	})
//	var fns api
//	err = lib.Resolve(&fns)
//
// A field may have a Go function type if machine words are not sufficient: a structure
// passed by value is on the stack on x86-64 and behind a pointer on arm64.
//
// A table is a plain value: two drivers may use two of them, and a test may fill one from a
// stand-in library.
//
// A library stays open until the process ends. The libraries that this package is for have
// threads and exit handlers of their own, and closing such a library crashes the process.
//
// # Calls
//
// A [Func] takes and returns machine words, as C does. Pointers to Go memory are converted
// in the argument list itself, uintptr(unsafe.Pointer(&x)), which makes the compiler keep x
// in place until the call returns. A call costs about 0.1 µs; while it blocks, the
// scheduler gives its processor to other goroutines.
//
// # Dependencies of the binary
//
// Opening libraries requires the system's dynamic loader. A program that imports this
// package is built without cgo and without a C compiler, and is still dynamically linked
// against the C library's loader (libc.so.6, libdl.so.2, libpthread.so.0) and nothing else.
//
// # Lock order
//
//	Lazy.mu (held while the family opens its library)
package dl
