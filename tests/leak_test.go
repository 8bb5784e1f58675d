package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestNothingLeaks creates and removes files, with failures of all kinds among the operations,
// and compares the resources that the daemon holds before and after.
func TestNothingLeaks(t *testing.T) {
	kit.Check(t)
	// Up to its memory limit a daemon lets garbage grow to three times the memory in use, which
	// would be most of the resident memory.
	m := mnt.Mount(t, mnt.Options{Faulty: true, Env: []string{"GOGC=50"}})
	warm, cycles := kit.Rounds(50, 50, 200), kit.Rounds(250, 250, 2000)
	m.Faults.Set(t, "sim0 copy-in every 7 error", "sim0 copy-out every 11 error", "sim0 alloc every 5 memory",
		"sim1 copy every 3 error", "sim1 fill every 3 error")
	l := &leaker{m: m, buf: make([]byte, 300_000)}
	for n := range warm { // caches are filled then
		l.cycle(n)
	}
	before := l.held(t)
	for n := range cycles {
		l.cycle(n)
	}
	m.Faults.Set(t)
	if l.done == 0 || l.failed == 0 {
		t.Errorf("%d operations went well and %d failed: the test proves nothing", l.done, l.failed)
	}
	t.Logf("%d operations went well, %d failed; at first %+v", l.done, l.failed, before)
	kit.Eventually(t, time.Minute, func() error { return l.compare(before, l.held(t)) })
	for _, dir := range []string{"host", "sim0", "sim1"} {
		if left, err := os.ReadDir(m.Path(dir)); len(left) > 0 || err != nil {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
	checkFsck(t, m, nil)
	pid := m.PID()
	m.Umount()
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the daemon is still there: %v", err)
	}
	if left := mnt.MountedBelow(filepath.Dir(m.Dir)); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
}

// leaker creates and removes files and counts the failures.
type leaker struct {
	m            *mnt.M
	buf          []byte
	done, failed int
}

// note records the outcome of one operation.
func (l *leaker) note(errs ...error) {
	for _, err := range errs {
		if err != nil {
			l.failed++
		} else {
			l.done++
		}
	}
}

// cycle is the life of a file on each device, with operations that fail on their own and
// others that fail because of a device.
func (l *leaker) cycle(n int) {
	for _, device := range []string{"host", "sim0", "sim1"} {
		name := l.m.Path(device, fmt.Sprint("f", n%10))
		other := l.m.Path(device, "other")
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if l.note(err); err != nil {
			continue
		}
		size := 1 + n*997%len(l.buf)
		_, err = f.WriteAt(bytes.Repeat([]byte{byte(n)}, size), int64(n%3*5000))
		l.note(err)
		_, err = f.ReadAt(l.buf[:size], 0)
		l.note(err)
		if n%16 == 0 {
			l.rareCases(f, name)
		}
		l.note(f.Truncate(int64(size/2)), os.Link(name, other), os.Link(name, other), unix.Setxattr(name, "user.hmc.key", []byte("/"), 0),
			unix.Setxattr(name, "user.hmc.key", fmt.Appendf(nil, "key-%s", device), 0))
		if n%2 == 0 { // removed while open
			l.note(os.Remove(name), f.Close(), os.Remove(other))
			continue
		}
		l.note(f.Close(), os.Rename(name, other), os.Remove(other), os.Remove(name), os.Remove(other))
	}
}

// rareCases runs operations that cost more: on a full device, on a map, to another device.
func (l *leaker) rareCases(f *os.File, name string) {
	l.note(fallocate(f, 0, 0, 1<<40), fallocate(f, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	p, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if l.note(err); err == nil {
		l.note(unix.Munmap(p))
	}
	to := l.m.Path("sim1", "moved")
	copied, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE, 0o644)
	if l.note(err); err == nil {
		_, err = unix.CopyFileRange(int(f.Fd()), nil, int(copied.Fd()), nil, 1<<20, 0)
		l.note(err, copied.Close(), unix.Rename(to, l.m.Path("sim0", "moved")), unix.Rename(name, filepath.Join(to, "no")))
	}
	_ = os.Remove(to) // it exists under one of the names
	_ = os.Remove(l.m.Path("sim0", "moved"))
}

// holding holds the amounts of a daemon's resources.
type holding struct {
	memory adminapi.Memory
	used   map[string]uint64
}

func (l *leaker) held(t *testing.T) holding {
	t.Helper()
	s := l.m.Status()
	h := holding{memory: s.Memory, used: map[string]uint64{}}
	for _, d := range s.Devices {
		h.used[string(d.Name)] = uint64(d.Used)
	}
	return h
}

// compare names the resources that have grown more than random variation explains.
func (l *leaker) compare(before, after holding) error {
	const few, grown = 8, 48 << 20
	var errs []error
	if a, b := after.memory.Goroutines, before.memory.Goroutines; a > b+few {
		errs = append(errs, fmt.Errorf("%d goroutines, there were %d", a, b))
	}
	if a, b := after.memory.Files, before.memory.Files; a > b+few {
		errs = append(errs, fmt.Errorf("%d descriptors, there were %d", a, b))
	}
	if a, b := uint64(after.memory.Resident), uint64(before.memory.Resident); a > b+grown && !kit.Race() {
		errs = append(errs, fmt.Errorf("%d bytes resident, there were %d", a, b))
	}
	for device, n := range after.used {
		if n > before.used[device] {
			errs = append(errs, fmt.Errorf("%s has %d bytes in use, there were %d", device, n, before.used[device]))
		}
	}
	return errors.Join(errs...)
}
