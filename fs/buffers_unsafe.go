package fs

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
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

// touched writes to each page of a buffer.
func touched(buffer any) any {
	const page = 4096
	if b, ok := buffer.([]byte); ok {
		for at := 0; at < len(b); at += page {
			b[at] = 0
		}
		if len(b) > 0 {
			b[len(b)-1] = 0
		}
	}
	return buffer
}
