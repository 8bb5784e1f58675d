package transporttest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// Fold is the distance, in bytes, of two addresses of Folded memory that refer to the same
// bytes.
const Fold = 32 << 20

// Folded returns a range of folds × Fold bytes and one page, which may exceed the machine's
// memory: all folds map the same memory, with the content of the seed. The page is separate
// memory, with the content of the next seed. It is unmapped at the end of the test.
func Folded(t testing.TB, folds int, seed uint64) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := folds*Fold + page
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if merr := unix.MunmapPtr(base, uintptr(size)); merr != nil {
			t.Error(merr)
		}
	})
	fold, last := kit.Memfd(t, seed, Fold), kit.Memfd(t, seed+1, page)
	var errs []error
	for i := range folds {
		errs = append(errs, place(unsafe.Add(base, i*Fold), fold, Fold))
	}
	if err = errors.Join(append(errs, place(unsafe.Add(base, folds*Fold), last, page))...); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*byte)(base), size)
}

// place maps a whole file at an address.
func place(at unsafe.Pointer, f *os.File, n int) error {
	_, err := unix.MmapPtr(int(f.Fd()), 0, at, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map at %p: %w", at, err)
	}
	return nil
}
