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
	var maps transport.Mappings
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
		m, err := maps.Map(c.file, c.n)
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
	m, err := new(transport.Mappings).Map(f, 4096)
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

// TestMappingsAreBounded maps sparse memory, which costs its owner nothing, until there is no room,
// and again after a release.
func TestMappingsAreBounded(t *testing.T) {
	f, err := share(t, 1<<42)
	if err != nil {
		t.Fatal(err)
	}
	var maps transport.Mappings
	var all []*transport.Mapping
	defer func() {
		for _, m := range all {
			if failed := m.Release(); failed != nil {
				t.Error(failed)
			}
		}
	}()
	for range 4 {
		m, failed := maps.Map(f, 1<<42)
		if failed != nil {
			t.Fatal(failed)
		}
		all = append(all, m)
	}
	if _, err = maps.Map(f, 4096); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("beyond the bound: %v", err)
	}
	if err = all[0].Release(); err != nil {
		t.Fatal(err)
	}
	all = all[1:]
	m, err := maps.Map(f, 4096)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, m)
}

// share makes sparse memory of n bytes that cannot shrink.
func share(t *testing.T, n int64) (*os.File, error) {
	t.Helper()
	fd, err := unix.MemfdCreate("hmcfs-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { _ = f.Close() })
	if err = f.Truncate(n); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	return f, err
}
