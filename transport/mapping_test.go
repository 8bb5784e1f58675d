package transport_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// TestOnlySealedFilesAreMapped offers files whose owner could truncate them, which would end the
// process that has them mapped.
func TestOnlySealedFilesAreMapped(t *testing.T) {
	const size = 3 * 4096
	content := kit.Bytes(1, 0, size)
	disk, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = disk.Close() }()
	fd, err := unix.MemfdCreate("hmcfs-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	loose := os.NewFile(uintptr(fd), "memfd")
	defer func() { _ = loose.Close() }()
	for _, f := range []*os.File{disk, loose} {
		if _, err = f.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
	}
	sealed := transporttest.SealedFile(t, content)
	for name, c := range map[string]struct {
		file *os.File
		n    devices.Size
		ok   bool
	}{
		"on a disk":          {disk, size, false},
		"memory, unsealed":   {loose, size, false},
		"sealed":             {sealed, size, true},
		"a part":             {sealed, 4097, true},
		"more than it has":   {sealed, size + 1, false},
		"nothing":            {sealed, 0, false},
		"an absurd size":     {sealed, 1 << 60, false},
		"the largest number": {sealed, 1<<64 - 1, false},
	} {
		m, err := transport.MapFile(c.file, c.n)
		if ok := err == nil; ok != c.ok || !ok && !errors.Is(err, devices.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err = m.Release(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestMappedSpanIsInside refuses spans that reach behind the mapping.
func TestMappedSpanIsInside(t *testing.T) {
	f := transporttest.SealedFile(t, kit.Bytes(2, 0, 8192))
	m, err := transport.MapFile(f, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Release() }()
	e := newEngine(t, transport.Options{})
	for _, at := range [][2]int64{{4000, 97}, {4096, 1}, {-1, 2}, {5000, 10}} {
		into := make([]byte, at[1])
		if _, err := e.Copy(t.Context(), transport.HostSpan(into), transport.MappedSpan("host", m, at[0], devices.Size(at[1]))); !errors.Is(err, devices.ErrRange) {
			t.Errorf("%d bytes from %d: %v", at[1], at[0], err)
		}
	}
}
