package fs

import (
	"os"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// TestBuffersArePresent checks that the kernel makes no page when it copies a request.
func TestBuffersArePresent(t *testing.T) {
	const opInit = 26
	init := fuse.InitIn{InHeader: fuse.InHeader{Length: uint32(unsafe.Sizeof(fuse.InitIn{})), Opcode: opInit, Unique: 2}, Major: 7, Minor: 40}
	with, err := handshake(fuse.NewDefaultRawFileSystem(), &init, &fuse.MountOptions{MaxWrite: 1 << 20})
	must(t, err)
	if !keepBuffers(with.server) {
		t.Fatal("this version of go-fuse has no such buffers")
	}
	for i := range 32 {
		b, ok := bufferPool(with.server).Get().([]byte)
		if !ok || len(b) < 1<<20 {
			t.Fatalf("buffer %d has %d bytes", i, len(b))
		}
		if n := absent(t, b); n > 0 {
			t.Errorf("%d pages of buffer %d are not there", n, i)
		}
	}
}

// absent counts the pages of memory that are not there.
func absent(t *testing.T, b []byte) (n int) {
	t.Helper()
	page := uintptr(os.Getpagesize())
	first := uintptr(unsafe.Pointer(&b[0])) &^ (page - 1)
	last := uintptr(unsafe.Pointer(&b[len(b)-1]))
	there := make([]byte, (last-first)/page+1)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, first, last-first+1, uintptr(unsafe.Pointer(&there[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, state := range there {
		if state&1 == 0 {
			n++
		}
	}
	return n
}
