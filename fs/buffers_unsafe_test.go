package fs

import (
	"os"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
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

// TestPopulate answers from a file that was mapped just now, whose pages are in memory but not in the map: those of the
// answer are afterwards, and no others need be.
func TestPopulate(t *testing.T) {
	f := memfd(t, 16)
	defer func() { _ = f.Close() }()
	m, err := unix.Mmap(int(f.Fd()), 0, 16*int(pageSize), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer func() { must(t, unix.Munmap(m)) }()
	if n := unmapped(t, m); n != 16 {
		t.Fatalf("%d of 16 pages are not in a new map", n)
	}
	answer := [][]byte{m[3*pageSize+100 : 5*pageSize+1], nil, m[9*pageSize : 9*pageSize+1]}
	populate(answer)
	for i, part := range [][]byte{m[3*pageSize : 6*pageSize], m[9*pageSize : 10*pageSize]} {
		if n := unmapped(t, part); n > 0 {
			t.Errorf("part %d: %d pages are not there", i, n)
		}
	}
}

// memfd returns a file in memory of some pages, with bytes in each.
func memfd(t *testing.T, pages int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("populate", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "populate")
	_, err = f.Write(kit.Bytes(1, 0, pages*int(pageSize)))
	must(t, err)
	return f
}

// unmapped counts the pages that are not in a map, by its first byte. The highest bit of an entry of the pagemap is
// that of a page that is (Documentation/admin-guide/mm/pagemap.rst).
func unmapped(t *testing.T, m []byte) (n int) {
	t.Helper()
	pagemap, err := os.Open("/proc/self/pagemap")
	must(t, err)
	defer func() { _ = pagemap.Close() }() // it was only read
	entries := make([]byte, 8*len(m)/int(pageSize))
	_, err = pagemap.ReadAt(entries, int64(uintptr(unsafe.Pointer(&m[0]))/uintptr(pageSize)*8))
	must(t, err)
	for i := 7; i < len(entries); i += 8 {
		if entries[i]&0x80 == 0 {
			n++
		}
	}
	return n
}
