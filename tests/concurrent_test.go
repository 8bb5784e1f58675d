package tests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// firstStranger returns the index of the first byte in p, which was read at off, that belongs
// to none of the contents of the seeds, or -1.
func firstStranger(p []byte, off int64, seeds ...uint64) int {
	contents := make([][]byte, len(seeds))
	for i, seed := range seeds {
		contents[i] = kit.Bytes(seed, off, len(p))
	}
next:
	for i, b := range p {
		for _, c := range contents {
			if c[i] == b {
				continue next
			}
		}
		return i
	}
	return -1
}

// together runs all functions concurrently and waits for them.
func together(t *testing.T, all ...func() error) {
	t.Helper()
	var group sync.WaitGroup
	for _, run := range all {
		group.Go(func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// TestWritersOfOneFile lets writers change interleaved stripes of one file, each through its
// own handle, while readers check all of it.
func TestWritersOfOneFile(t *testing.T) {
	const (
		writers, stripe, size = 4, 24_000, 2 << 20
		passes                = 6
	)
	for _, device := range []string{"host", "sim0"} {
		t.Run(device, func(t *testing.T) {
			kit.Check(t)
			m := mnt.Mount(t, mnt.Options{})
			path := m.Path(device, "shared")
			if err := os.WriteFile(path, kit.Bytes(0, 0, size), 0o644); err != nil {
				t.Fatal(err)
			}
			// Pass p writes content p, so that every byte belongs to one pass.
			all := make([]uint64, passes+1)
			for p := range all {
				all[p] = uint64(p)
			}
			var over atomic.Bool
			var group sync.WaitGroup
			for w := range writers {
				group.Go(func() {
					if err := writeStripes(path, w, writers, stripe, passes, size); err != nil {
						t.Error(err)
					}
				})
			}
			read := func() error { return readUntil(path, &over, all) }
			stopped := make(chan struct{})
			go func() { group.Wait(); over.Store(true); close(stopped) }()
			together(t, read, read, func() error { <-stopped; return nil })
			got, err := os.ReadFile(path)
			if at := kit.FirstDiff(got, kit.Bytes(passes, 0, size)); err != nil || at >= 0 {
				t.Errorf("the last pass is not all there: differs at %d, %v", at, err)
			}
		})
	}
}

// writeStripes writes each writers-th stripe of a file, pass after pass.
func writeStripes(path string, first, writers, stripe, passes, size int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // without an error this is the second call
	for p := 1; p <= passes; p++ {
		for at := first * stripe; at < size; at += writers * stripe {
			n := min(stripe, size-at)
			if _, err := f.WriteAt(kit.Bytes(uint64(p), int64(at), n), int64(at)); err != nil {
				return err
			}
			got := make([]byte, n)
			if _, err := f.ReadAt(got, int64(at)); err != nil {
				return err
			}
			if i := kit.DiffAt(got, uint64(p), int64(at)); i >= 0 {
				return fmt.Errorf("the writer of a stripe at %d does not read what it wrote: byte %d differs in pass %d", at, i, p)
			}
		}
	}
	return f.Close()
}

// readUntil reads a file repeatedly; every byte must belong to the content of one of the
// seeds.
func readUntil(path string, over *atomic.Bool, seeds []uint64) error {
	for !over.Load() {
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if i := firstStranger(got, 0, seeds...); i >= 0 {
			return fmt.Errorf("%s: byte %d of %d, %#x, was never written there", path, i, len(got), got[i])
		}
	}
	return nil
}

// TestReadersDuringRewrites truncates and rewrites a file while other files that reuse the
// same memory are created and removed: readers see only bytes of that file, and no zeros,
// since there is never a hole in it.
func TestReadersDuringRewrites(t *testing.T) {
	const size, generations = 700_001, 40
	for _, device := range []string{"host", "sim0"} {
		t.Run(device, func(t *testing.T) {
			kit.Check(t)
			m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=32MiB", "sim:0,size=32MiB"}})
			path := m.Path(device, "rewritten")
			if err := os.WriteFile(path, kit.Bytes(0, 0, size), 0o644); err != nil {
				t.Fatal(err)
			}
			seeds := []uint64{0, 1, 2, 3}
			var over atomic.Bool
			rewrite := func() error {
				defer over.Store(true)
				for g := range uint64(generations) {
					if err := os.WriteFile(path, kit.Bytes(g%4, 0, size), 0o644); err != nil {
						return err
					}
				}
				return nil
			}
			read := func() error { return readUntil(path, &over, seeds) }
			together(t, rewrite, read, read,
				func() error { return churn(m.Path(device, "churn-1"), &over, 100) },
				func() error { return churn(m.Path(device, "churn-2"), &over, 200) })
		})
	}
}

// churn creates and removes a file until over is set.
func churn(path string, over *atomic.Bool, seed uint64) error {
	for n := 0; !over.Load(); n++ {
		size := 100_000 + n%7*150_000
		if err := os.WriteFile(path, kit.Bytes(seed, 0, size), 0o644); err != nil {
			return err
		}
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if i := kit.FirstDiff(got, kit.Bytes(seed, 0, size)); i >= 0 {
			return fmt.Errorf("%s: byte %d of %d differs", path, i, size)
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// TestProcessesInBothDirections copies and moves between two slow devices in both directions
// concurrently, each in its own process.
func TestProcessesInBothDirections(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{
		"host,size=64MiB", "sim:0,size=96MiB,bandwidth=400MB/s", "sim:1,size=96MiB,bandwidth=400MB/s",
	}})
	const size, pairs = 8<<20 + 77, 3
	var commands []func() error
	for i := range pairs {
		for d, dirs := range [][2]string{{"sim0", "sim1"}, {"sim1", "sim0"}} {
			seed := uint64(i*2 + d)
			from, to := m.Path(dirs[0], fmt.Sprint("f", seed)), m.Path(dirs[1], fmt.Sprint("t", seed))
			if err := os.WriteFile(from, kit.Bytes(seed, 0, size), 0o644); err != nil {
				t.Fatal(err)
			}
			commands = append(commands, func() error { return shuttle(from, to, seed, size) })
		}
	}
	together(t, commands...)
}

// shuttle copies a file to the other device, moves the original over the copy and back, and
// checks the bytes each time.
func shuttle(from, to string, seed uint64, size int) error {
	for range 2 {
		for _, args := range [][]string{{"cp", from, to}, {"cmp", from, to}, {"mv", "-f", from, to}, {"mv", to, from}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%q: %w: %s", args, err, out)
			}
		}
	}
	got, err := os.ReadFile(from)
	if at := kit.FirstDiff(got, kit.Bytes(seed, 0, size)); err != nil || at >= 0 {
		return fmt.Errorf("%s: %d bytes, differs at %d, %w", from, len(got), at, err)
	}
	return nil
}

// TestTwoMounts runs two daemons at once: neither sees the other's files, and the death of one
// does not affect the other.
func TestTwoMounts(t *testing.T) {
	kit.Check(t)
	one, two := mnt.Mount(t, mnt.Options{}), mnt.Mount(t, mnt.Options{})
	const size = 3<<20 + 1
	for i, m := range []*mnt.M{one, two} {
		for _, device := range []string{"host", "sim0"} {
			if err := os.WriteFile(m.Path(device, "same-name"), kit.Bytes(uint64(i), 0, size), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.Command("cp", one.Path("sim0", "same-name"), two.Path("sim0", "from-one")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	one.Kill()
	for name, seed := range map[string]uint64{"sim0/same-name": 1, "host/same-name": 1, "sim0/from-one": 0} {
		got, err := os.ReadFile(two.Path(name))
		if at := kit.FirstDiff(got, kit.Bytes(seed, 0, size)); err != nil || at >= 0 {
			t.Errorf("%s: differs at %d, %v", name, at, err)
		}
	}
	one.Start()
	if _, err := os.Stat(one.Path("sim0", "from-one")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the other mount: %v", err)
	}
	wholeOrLost(t, one.Path("host", "same-name"), kit.Bytes(0, 0, size))
}

// TestSignalsDuringOperations sends this process the signal by which Go preempts its threads,
// at a high rate, while it reads, writes, copies and renames.
func TestSignalsDuringOperations(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{
		"host,size=32MiB", "sim:0,size=64MiB,bandwidth=2GB/s,latency=200us", "sim:1,size=64MiB,mapped=true",
	}})
	var over atomic.Bool
	time.AfterFunc(signalTime(), func() { over.Store(true) })
	var work []func() error
	for i, dirs := range [][2]string{{"sim0", "sim1"}, {"sim1", "sim0"}, {"host", "sim1"}, {"sim0", "sim0"}} {
		a, b := m.Path(dirs[0], fmt.Sprint("a", i)), m.Path(dirs[1], fmt.Sprint("b", i))
		work = append(work, func() error {
			for seed := uint64(i) << 32; !over.Load(); seed++ {
				if err := pass(a, b, seed); err != nil {
					return err
				}
			}
			return nil
		})
	}
	together(t, append(work, func() error { return hammer(&over) })...)
}

// signalTime returns the duration of TestSignalsDuringOperations.
func signalTime() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 4 * time.Second
}

// hammer sends SIGURG to all threads of this process.
func hammer(over *atomic.Bool) error {
	for !over.Load() {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			var tid int
			if _, err := fmt.Sscan(task.Name(), &tid); err != nil {
				return err
			}
			_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // it may have ended
		}
	}
	return nil
}

// pass writes a file, copies it, moves the copy over it and reads it, with plain system calls:
// the only effect of a signal may be EINTR without any progress.
func pass(a, b string, seed uint64) error {
	const size = 1<<20 + 4097
	want := kit.Bytes(seed, 0, size)
	for _, path := range []string{a, b} {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		err = callWhole(size, func() (int, error) { return unix.Pwrite(int(f.Fd()), want, 0) })
		got := make([]byte, size)
		if err == nil {
			err = callWhole(size, func() (int, error) { return unix.Pread(int(f.Fd()), got, 0) })
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if i := kit.FirstDiff(got, want); i >= 0 {
			return fmt.Errorf("%s: byte %d differs", path, i)
		}
	}
	if err := copyAndSync(a, b); err != nil {
		return err
	}
	if err := renameAcross(b, filepath.Join(filepath.Dir(a), "moved-"+filepath.Base(a))); err != nil {
		return fmt.Errorf("rename %s: %w", b, err)
	}
	got, err := os.ReadFile(filepath.Join(filepath.Dir(a), "moved-"+filepath.Base(a)))
	if i := kit.FirstDiff(got, want); err != nil || i >= 0 {
		return fmt.Errorf("after copy and rename: byte %d of %d differs, %w", i, len(got), err)
	}
	return nil
}

// callWhole repeats a call while it is interrupted; the call must then transfer everything.
func callWhole(size int, call func() (int, error)) error {
	n, err := again(call)
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes", n, size)
	}
	return err
}

// copyAndSync copies a file over another by copy_file_range.
func copyAndSync(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // the file was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return nil
}
