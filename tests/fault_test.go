package tests

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// faultyMount mounts two devices that follow m.Faults: one whose memory is copied, and one
// whose memory is mapped.
func faultyMount(t *testing.T) *mnt.M {
	t.Helper()
	m, _ := faultyMountWithPairs(t)
	return m
}

// faultyMountWithPairs also returns the pairs of devices on which to run faultyWork. If OpenCL
// is available, one of its devices is the first of a pair.
func faultyMountWithPairs(t *testing.T) (*mnt.M, [][2]string) {
	t.Helper()
	devices := []string{"host,size=32MiB", "sim:0,size=32MiB", "sim:1,size=32MiB,mapped=true"}
	pairs := [][2]string{{"sim0", "sim1"}, {"sim1", "sim0"}}
	if kit.Missing("opencl") == nil {
		devices, pairs = append(devices, "opencl:0,size=32MiB"), append(pairs, [2]string{"ocl0", "sim0"})
	}
	return mnt.Mount(t, mnt.Options{Faulty: true, Devices: devices}), pairs
}

// faultySize is the size of the files of faultyWork.
const faultySize = 2<<20 + 100

// faultyWork runs the workload of tests on failing devices: it ends at the first error, and
// checks every byte that it reads.
func faultyWork(m *mnt.M, device, other string) error {
	a, b, c := m.Path(device, "a"), m.Path(device, "b"), m.Path(other, "c")
	if err := os.WriteFile(a, kit.Bytes(1, 0, faultySize), 0o644); err != nil {
		return err
	}
	if err := wantBytes(a); err != nil {
		return err
	}
	if err := copyFile(a, b); err != nil {
		return err
	}
	if err := wantBytes(b); err != nil {
		return err
	}
	if err := copyFile(b, c); err != nil {
		return err
	}
	if err := wantBytes(c); err != nil {
		return err
	}
	if err := os.Remove(c); err != nil {
		return err
	}
	if err := os.Rename(b, c); err != nil {
		return err
	}
	if err := wantBytes(c); err != nil {
		return err
	}
	return withFile(a, os.O_RDWR, func(f *os.File) error {
		if err := fallocate(f, punchHole, 1000, 100_000); err != nil {
			return err
		}
		if err := f.Truncate(500_000); err != nil {
			return err
		}
		return f.Truncate(faultySize)
	})
}

// errWrong reports that a read succeeded, but returned other bytes than were written.
var errWrong = errors.New("wrong bytes")

// wantBytes checks that a file has content 1, reading it in pieces of an odd size.
func wantBytes(name string) error {
	return withFile(name, os.O_RDONLY, func(f *os.File) error {
		buf := make([]byte, 300_001)
		for off := 0; off < faultySize; {
			n, err := f.ReadAt(buf[:min(len(buf), faultySize-off)], int64(off))
			if i := kit.DiffAt(buf[:n], 1, int64(off)); i >= 0 {
				return fmt.Errorf("%s at %d: %w", name, off+i, errWrong)
			}
			if off += n; err != nil {
				return err
			}
		}
		return nil
	})
}

func copyFile(from, to string) error {
	return withFile(from, os.O_RDONLY, func(in *os.File) error {
		out, err := os.Create(to)
		if err != nil {
			return err
		}
		for done := 0; done < faultySize && err == nil; {
			var n int
			n, err = copyFileRange(in, nil, out, nil, faultySize-done)
			if n == 0 && err == nil {
				err = fmt.Errorf("copied %d of %d: %w", done, faultySize, unix.EIO)
			}
			done += max(n, 0)
		}
		return errors.Join(err, out.Close())
	})
}

// clean removes the files of the work and checks that the daemon holds no resources for it any
// more.
func clean(t *testing.T, m *mnt.M, devices ...string) {
	t.Helper()
	for _, d := range devices {
		entries, err := os.ReadDir(m.Path(d))
		must(t, err)
		for _, e := range entries {
			must(t, os.Remove(m.Path(d, e.Name())))
		}
		m.AwaitUnused(mntPatience, d)
	}
}

// wantHeld checks that the daemon holds no more goroutines and descriptors than before.
func wantHeld(t *testing.T, m *mnt.M, goroutines, files int) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() error {
		if s := m.Status().Memory; s.Goroutines > goroutines || s.Files > files {
			return fmt.Errorf("the daemon has %d goroutines and %d descriptors, had %d and %d",
				s.Goroutines, s.Files, goroutines, files)
		}
		return nil
	})
}

// kinds returns the operations that are made to fail, with the errors of each.
func kinds() map[string][]string {
	return map[string][]string{
		"copy-in": {"error"}, "copy-out": {"error"}, "copy": {"error"}, "alloc": {"error", "memory"},
		"map": {"error"}, "free": {"error"}, "*": {"error"},
	}
}

func TestEveryNthDeviceOperationFails(t *testing.T) {
	kit.Check(t)
	m, pairs := faultyMountWithPairs(t)
	for _, dirs := range pairs {
		must(t, faultyWork(m, dirs[0], dirs[1]))
		clean(t, m, dirs[:]...)
	}
	// A daemon that has worked caches some resources.
	held := m.Status().Memory
	const spare = 8
	every := []int{1, 2, 7}
	if kit.Exhaustive() {
		every = []int{1, 2, 3, 7, 20}
	}
	for kind, injected := range kinds() {
		for _, what := range injected {
			for _, n := range every {
				for _, dirs := range pairs {
					rule := fmt.Sprintf("* %s every %d %s", kind, n, what)
					m.Faults.Set(t, rule)
					err := faultyWork(m, dirs[0], dirs[1])
					wantFaultErrno(t, dirs[0]+": "+rule, err)
					m.Faults.Set(t)
					wantSound(t, m, dirs[0])
					clean(t, m, dirs[:]...)
				}
			}
		}
	}
	for _, dirs := range pairs {
		must(t, faultyWork(m, dirs[0], dirs[1]))
		clean(t, m, dirs[:]...)
	}
	wantHeld(t, m, held.Goroutines+spare, held.Files+spare)
}

// wantFaultErrno checks that the work succeeded or ended with EIO or ENOSPC.
func wantFaultErrno(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, errWrong) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%s: got %v, want EIO or ENOSPC", what, err)
	}
}

// wantSound checks that after the faults every byte of a is either the byte written, or
// refused with EIO, or in a hole, or truncated.
func wantSound(t *testing.T, m *mnt.M, device string) {
	t.Helper()
	f, err := os.Open(m.Path(device, "a"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	must(t, err)
	defer func() { _ = f.Close() }() // the file was only read
	size := fstat(t, f).Size
	page := make([]byte, 4096)
	for off := int64(0); off < size; off += 4096 {
		n, err := f.ReadAt(page, off)
		want := kit.Bytes(1, off, n)
		for i := range page[:n] {
			if page[i] != want[i] && page[i] != 0 {
				t.Fatalf("%s: %#x at %d, was never written there", device, page[i], off+int64(i))
			}
		}
		if err != nil && !errors.Is(err, unix.EIO) && off+int64(n) != size {
			t.Fatalf("%s: read at %d: %v", device, off, err)
		}
	}
}

func TestOneFaultAtEachPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kit.Check(t)
	m, pairs := faultyMountWithPairs(t)
	for _, dirs := range pairs {
		failures := 0
		for n := range 200 {
			m.Faults.Set(t, fmt.Sprintf("%s * at %d error", dirs[0], n))
			err := faultyWork(m, dirs[0], dirs[1])
			wantFaultErrno(t, fmt.Sprintf("%s: operation %d", dirs[0], n), err)
			m.Faults.Set(t)
			wantSound(t, m, dirs[0])
			clean(t, m, dirs[:]...)
			if err != nil {
				failures = n
			} else if n > failures+20 {
				break // there are no more operations
			}
		}
		if failures == 0 {
			t.Errorf("%s: no fault was seen", dirs[0])
		}
	}
}

func TestFailedWriteKeepsWhatWasWritten(t *testing.T) {
	kit.Check(t)
	m := faultyMount(t)
	for _, device := range []string{"sim0", "sim1"} {
		name := m.Path(device, "a")
		create(t, name, 1, 4<<20)
		f := open(t, name, os.O_RDWR)
		m.Faults.Set(t, device+" copy-in every 1 error", device+" map every 1 error")
		for _, off := range []int64{4 << 20, 10 << 20} {
			if _, err := f.WriteAt(kit.Bytes(2, off, 1<<20), off); err != nil {
				wantErrno(t, err, unix.EIO)
			} else if device == "sim0" {
				t.Errorf("a write went well at %d", off)
			}
		}
		m.Faults.Set(t)
		must(t, f.Truncate(4<<20))
		wantRange(t, f, 1, 0, 4<<20)
		must(t, f.Close())
		wantContent(t, name, 1, 4<<20)
	}
}

func TestReadFaultsAreForThatReadOnly(t *testing.T) {
	kit.Check(t)
	m := faultyMount(t)
	create(t, m.Path("sim0", "a"), 1, 4<<20)
	m.Faults.Set(t, "sim0 copy-out every 1 error")
	_, err := os.ReadFile(m.Path("sim0", "a"))
	wantErrno(t, err, unix.EIO)
	m.Faults.Set(t)
	wantContent(t, m.Path("sim0", "a"), 1, 4<<20)
	if log := m.Log(); !slices.ContainsFunc([]string{"input/output", "copy out"}, func(s string) bool {
		return len(log) > 0 && strings.Contains(log, s)
	}) {
		t.Errorf("the log does not tell of the fault:\n%s", log)
	}
}

func TestFaultsOfTheHostTier(t *testing.T) {
	kit.Check(t)
	m := faultyMount(t)
	create(t, m.Path("host", "kept"), 1, 1<<20)
	for _, kind := range []string{"open-file", "remove-file", "reserve-file"} {
		m.Faults.Set(t, "host "+kind+" every 1 error")
		err := os.WriteFile(m.Path("host", "a"), kit.Bytes(2, 0, 1<<20), 0o644)
		wantFaultErrno(t, kind, err)
		wantFaultErrno(t, kind, ignoring(unix.Unlink(m.Path("host", "a")), unix.ENOENT))
		m.Faults.Set(t)
		if _, err := os.Lstat(m.Path("host", "a")); err == nil {
			must(t, os.Remove(m.Path("host", "a")))
		}
		wantContent(t, m.Path("host", "kept"), 1, 1<<20)
	}
	// A file that can't be opened can be removed.
	m.Faults.Set(t, "host open-file every 1 error")
	must(t, os.Remove(m.Path("host", "kept")))
	m.Faults.Set(t)
	kit.Eventually(t, mntPatience, func() bool { return m.Device("host").Used <= 1<<20 })
}
