package transport

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPagemap checks by both methods which pages are mapped.
func TestPagemap(t *testing.T) {
	pages, err := openPagemap()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pages.file.Close() }()
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 1500*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	at := func(i int) uintptr { return address(mem) + uintptr(i*page) }
	check := func(from, to int, want bool) {
		t.Helper()
		if got := pages.mapped(at(from), at(to)); got != want {
			t.Errorf("pages %d to %d mapped: %t, want %t", from, to, got, want)
		}
		if got := pages.read(uint64(at(from))/uint64(page), uint64(at(to))/uint64(page)); got != want {
			t.Errorf("pages %d to %d read as mapped: %t, want %t", from, to, got, want)
		}
	}
	for _, scan := range []bool{true, false} {
		pages.noScan.Store(!scan)
		check(0, 1500, false)
		check(700, 701, false)
		t.Logf("the kernel was asked page by page: %t", pages.noScan.Load())
		if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil {
			t.Fatal(err)
		}
		check(0, 1500, true)
		if err := unix.Madvise(mem[700*page:701*page], unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		check(0, 1500, false)
		check(0, 700, true)
		check(700, 701, false)
		check(701, 1500, true)
		if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
}
