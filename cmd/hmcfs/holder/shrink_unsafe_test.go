package holder

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestShrink maps the program as the loader does. A holder whose daemon is ready gives the pages back that are as in
// the file, and no others.
func TestShrink(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	program, err := os.Open("/proc/self/exe")
	must(t, err)
	defer func() { must(t, program.Close()) }()
	const size, at = 1 << 20, 5000
	mapped := func() []byte {
		m, fault := unix.Mmap(int(program.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		must(t, fault)
		t.Cleanup(func() { must(t, unix.Munmap(m)) })
		return m
	}
	read, written := mapped(), mapped()
	relocated := written[at] + 1
	written[at] = relocated
	for _, m := range [][]byte{read, written} {
		must(t, errors.Join(unix.Mprotect(m, unix.PROT_READ), unix.Madvise(m, unix.MADV_POPULATE_READ)))
		if n := residentOf(t, m); n != size>>10 {
			t.Fatalf("%d KiB of a mapping are in memory", n)
		}
	}
	must(t, c.Ready(startOf(r.socket)))
	_, err = c.Status() // it is asked after that
	must(t, err)
	if n := residentOf(t, read); n != 0 {
		t.Errorf("%d KiB of a mapping are still in memory", n)
	}
	if written[at] != relocated {
		t.Error("what was written to a mapping is gone")
	}
	must(t, c.End())
}

// residentOf returns how much of a mapping is in memory, in KiB.
func residentOf(t *testing.T, m []byte) (n int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/smaps")
	must(t, err)
	_, after, found := strings.Cut(string(data), fmt.Sprintf("%x-", uintptr(unsafe.Pointer(unsafe.SliceData(m)))))
	_, after, _ = strings.Cut(after, "\nRss:")
	if _, err = fmt.Sscanf(after, "%d kB", &n); err != nil || !found {
		t.Fatalf("no mapping: %v", err)
	}
	return n
}
