package fs

import (
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// keepBuffers has the buffers into which go-fuse reads requests consist of pages that are there. A
// process that is killed while the kernel copies a request into a page that is not makes the request
// fail with EIO, where it is repeated otherwise (fuse_dev_do_read, which ends a request that it could
// not copy; the fault ends when a fatal signal is pending). go-fuse has no option for its buffers.
//
// It returns false if this version of go-fuse keeps them elsewhere. It must be called before the first
// request.
func keepBuffers(s *fuse.Server) bool {
	pool := bufferPool(s)
	if pool == nil {
		return false
	}
	next := pool.New
	pool.New = func() any { return touched(next()) }
	pool.Put(touched(pool.Get())) // that of the first message
	return true
}

// bufferPool returns the pool of the buffers; nil if there is none.
func bufferPool(s *fuse.Server) *sync.Pool {
	field := reflect.ValueOf(s).Elem().FieldByName("readPool")
	if !field.IsValid() || field.Type() != reflect.TypeFor[sync.Pool]() {
		return nil
	}
	return (*sync.Pool)(unsafe.Pointer(field.UnsafeAddr()))
}

// populate has pages of mapped memory made that are not there yet, as after the start of the process that continues a mount:
// the kernel copies them into its answer, and fails the request if that has to wait for one and the process is
// killed.
func populate(slices [][]byte) {
	for _, s := range slices {
		if len(s) == 0 {
			continue
		}
		at := uintptr(unsafe.Pointer(unsafe.SliceData(s)))
		from := at &^ (uintptr(pageSize) - 1)
		// Memory of a device that has no such pages is there.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, at-from+uintptr(len(s)), unix.MADV_POPULATE_READ)
		runtime.KeepAlive(s)
	}
}

// touched writes to each page of a buffer.
func touched(buffer any) any {
	if b, ok := buffer.([]byte); ok {
		for at := 0; at < len(b); at += int(pageSize) {
			b[at] = 0
		}
		if len(b) > 0 {
			b[len(b)-1] = 0
		}
	}
	return buffer
}
