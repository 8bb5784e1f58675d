package owner_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const patience = time.Minute

func find(t *testing.T, pid int) *owner.Process {
	t.Helper()
	p, err := owner.Find(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func memfd(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("owner-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd:owner-test")
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	return f
}

// A process is found by its complete identity, and not if one part differs.
func TestID(t *testing.T) {
	kit.Check(t)
	pid, kill := kit.Process(t)
	p := find(t, pid)
	id := p.ID()
	again, err := id.Find()
	if err != nil || again.ID() != id {
		t.Fatalf("found again: %v", err)
	}
	if err := errors.Join(p.Close(), again.Close()); err != nil {
		t.Error(err)
	}
	other := id
	other.Start++
	if _, err := other.Find(); !errors.Is(err, owner.ErrGone) {
		t.Errorf("another start: %v", err)
	}
	other = id
	other.Boot = "another"
	if _, err := other.Find(); !errors.Is(err, owner.ErrGone) {
		t.Errorf("another boot: %v", err)
	}
	kill()
	if _, err := id.Find(); !errors.Is(err, owner.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	for _, pid := range []int{-1, 0, 1 << 22} {
		if _, err := owner.Find(pid); !errors.Is(err, owner.ErrGone) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}

func TestBelongsTo(t *testing.T) {
	kit.Check(t)
	p := find(t, os.Getpid())
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	uid := uint32(os.Getuid())
	for _, tc := range []struct {
		uid  uint32
		want bool
	}{{uid, true}, {0, true}, {uid + 12345, false}} {
		if mine, err := p.BelongsTo(tc.uid); mine != tc.want || err != nil {
			t.Errorf("to %d: %v, %v", tc.uid, mine, err)
		}
	}
	if owner.Groups(os.Getpid(), uid+12345) != nil {
		t.Error("the groups of a process are told for another user")
	}
	if leader := owner.Leader(unix.Gettid()); leader != os.Getpid() {
		t.Errorf("thread %d belongs to %d, not %d", unix.Gettid(), leader, os.Getpid())
	}
}

// Each callback runs once, for its process, unless it was cancelled.
func TestWatcher(t *testing.T) {
	kit.Check(t)
	w := owner.NewWatcher()
	const processes, each = 20, 5
	var ended [processes]atomic.Int64
	var cancelled atomic.Int64
	var kills []func()
	for i := range processes {
		pid, kill := kit.Process(t)
		kills = append(kills, kill)
		for range each {
			if _, err := w.Watch(find(t, pid), func() { ended[i].Add(1) }); err != nil {
				t.Fatal(err)
			}
		}
		cancel, err := w.Watch(find(t, pid), func() { cancelled.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		cancel()
	}
	for i, kill := range kills[:processes-1] {
		kill()
		kit.Eventually(t, patience, func() bool { return ended[i].Load() == each })
	}
	if n := ended[processes-1].Load(); n != 0 || cancelled.Load() != 0 {
		t.Errorf("%d told of a process that lives, %d that were cancelled", n, cancelled.Load())
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.Watch(find(t, os.Getpid()), func() {}); err == nil {
		t.Error("a closed watcher watches")
	}
}

// The end of a process before it is watched is reported too.
func TestWatchWhatHasEnded(t *testing.T) {
	kit.Check(t)
	w := owner.NewWatcher()
	pid, kill := kit.Process(t)
	p := find(t, pid)
	kill()
	told := make(chan struct{})
	if _, err := w.Watch(p, func() { close(told) }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(patience):
		t.Error("nobody is told")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// A callback may cancel others, and itself.
func TestWatchersCancelEachOther(t *testing.T) {
	kit.Check(t)
	w := owner.NewWatcher()
	pid, kill := kit.Process(t)
	var cancels [4]func()
	var mu sync.Mutex
	told := make(chan struct{}, len(cancels))
	mu.Lock()
	for i := range cancels {
		var err error
		cancels[i], err = w.Watch(find(t, pid), func() {
			mu.Lock()
			defer mu.Unlock()
			for _, cancel := range cancels {
				cancel()
			}
			told <- struct{}{}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mu.Unlock()
	kill()
	<-told
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// Memory is found at its owner's descriptor, and no other file is mistaken for it.
func TestFiles(t *testing.T) {
	kit.Check(t)
	eachGuard(t, func(t *testing.T, g *owner.Guard) { testFiles(t, g) })
}

func testFiles(t *testing.T, g *owner.Guard) {
	t.Helper()
	f := memfd(t)
	id, size, err := owner.Facts(f)
	if err != nil || size != 4096 || id == (owner.FileID{}) {
		t.Fatalf("facts of a memfd: %+v, %d, %v", id, size, err)
	}
	pid, _ := kit.Process(t, f)
	p := find(t, pid)
	defer func() {
		if err = p.Close(); err != nil {
			t.Error(err)
		}
	}()
	uid := uint32(os.Getuid())
	taken, err := p.Descriptor(g, 3, uid)
	if err != nil {
		t.Fatal(err)
	}
	found, err := p.Search(g, id, uid)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*os.File{taken, found} {
		if same, _, ferr := owner.Facts(g); same != id || ferr != nil {
			t.Errorf("another file: %+v, %v", same, ferr)
		}
		if err = errors.Join(owner.CheckWritable(g), g.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err = p.Descriptor(g, 99, uid); !errors.Is(err, owner.ErrNotMemory) {
		t.Errorf("a descriptor that there is not: %v", err)
	}
	if _, err = p.Descriptor(g, 0, uid); !errors.Is(err, owner.ErrNotMemory) {
		t.Errorf("a pipe: %v", err)
	}
	if _, err = p.Search(g, owner.FileID{Dev: 1, Ino: 1}, uid); !errors.Is(err, owner.ErrGone) {
		t.Errorf("a file that nobody has: %v", err)
	}
}

// A process that was a user's when it was found may since have executed another user's program,
// whose descriptors the user must not get.
func TestTakeAsksAgain(t *testing.T) {
	kit.Check(t)
	eachGuard(t, func(t *testing.T, g *owner.Guard) { testTakeAsksAgain(t, g) })
}

func testTakeAsksAgain(t *testing.T, g *owner.Guard) {
	t.Helper()
	pid, _ := kit.Process(t, memfd(t))
	p := find(t, pid)
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	other := uint32(os.Getuid() + 12345)
	for name, take := range map[string]func(*owner.Guard, int, uint32) (*os.File, error){"take": p.Take, "descriptor": p.Descriptor} {
		f, err := take(g, 3, other)
		if !errors.Is(err, owner.ErrDenied) {
			t.Errorf("%s for another user: %v", name, err)
		}
		if f != nil {
			t.Errorf("%s leaves a descriptor: %v", name, f.Close())
		}
	}
}

// A file that was taken once is found again under another number, but never by a number that
// now refers to another file, nor if it is ambiguous.
func TestTakeAgain(t *testing.T) {
	kit.Check(t)
	eachGuard(t, func(t *testing.T, g *owner.Guard) { testTakeAgain(t, g) })
}

func testTakeAgain(t *testing.T, g *owner.Guard) {
	t.Helper()
	uid := uint32(os.Getuid())
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err = null.Close(); err != nil {
			t.Error(err)
		}
	}()
	a, b := memfd(t), memfd(t)
	pid, _ := kit.Process(t, a, b, a, null, null)
	p := find(t, pid)
	defer func() {
		if err = p.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, tc := range []struct {
		file *os.File
		n    int
		want error
	}{
		{a, 3, nil},
		{a, 5, nil},
		{a, 4, nil},
		{a, -1, nil},
		{b, 3, nil},
		{b, 99, nil},
		{null, 6, nil},
		{null, -1, owner.ErrGone},
		{memfd(t), 3, owner.ErrGone},
	} {
		want, err := owner.Identity(tc.file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.TakeAgain(g, want, tc.n, uid)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s under %d: %v", tc.file.Name(), tc.n, err)
		}
		if err != nil {
			continue
		}
		if got, err := owner.Identity(f); got != want || err != nil {
			t.Errorf("%s under %d: another file, %v", tc.file.Name(), tc.n, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpen(t *testing.T) {
	kit.Check(t)
	eachGuard(t, func(t *testing.T, g *owner.Guard) { testOpen(t, g) })
}

func testOpen(t *testing.T, g *owner.Guard) {
	t.Helper()
	uid := uint32(os.Getuid())
	dir, err := os.MkdirTemp("/dev/shm", "hmcfs-owner-") //nolint:usetesting // it must be on a tmpfs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err = os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	file, link, fifo := filepath.Join(dir, "f"), filepath.Join(dir, "l"), filepath.Join(dir, "p")
	err = errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Symlink(file, link), unix.Mkfifo(fifo, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.Open(file, uid)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(owner.CheckWritable(f), f.Close()); err != nil {
		t.Error(err)
	}
	for _, path := range []string{link, fifo, dir, "/dev/zero", "/proc/self/stat", "/etc/passwd"} {
		if _, err = g.Open(path, uid); !errors.Is(err, owner.ErrNotMemory) {
			t.Errorf("%s: %v", path, err)
		}
	}
	told := map[string]bool{}
	for _, path := range []string{file, file + "-no", dir, link, "/etc/passwd", "/dev/zero"} {
		_, err = g.Open(path, uid+12345)
		if !errors.Is(err, owner.ErrDenied) {
			t.Errorf("%s for another user: %v", path, err)
			continue
		}
		told[strings.ReplaceAll(err.Error(), path, "PATH")] = true
	}
	if len(told) != 1 {
		t.Errorf("another user is told what is there: %v", told)
	}
	if _, err = g.Open(file+"-no", uid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	read, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err = owner.CheckWritable(read); !errors.Is(err, owner.ErrDenied) {
		t.Errorf("open for reading: %v", err)
	}
	if err = read.Close(); err != nil {
		t.Error(err)
	}
}

func TestParseDescriptor(t *testing.T) {
	for _, tc := range []struct {
		path   string
		pid, n int
		ok     bool
	}{
		{"/proc/17/fd/3", 17, 3, true},
		{"/proc/self/fd/3", 0, 0, false},
		{"/proc/17/fd/3/x", 0, 0, false},
		{"/proc/17/fd/-3", 0, 0, false},
		{"/proc/0/fd/3", 0, 0, false},
		{"proc/17/fd/3", 0, 0, false},
		{"/dev/shm/x", 0, 0, false},
		{"", 0, 0, false},
	} {
		pid, n, ok := owner.ParseDescriptor(tc.path)
		if ok != tc.ok || ok && (pid != tc.pid || n != tc.n) {
			t.Errorf("%s: %d, %d, %v", tc.path, pid, n, ok)
		}
	}
}

// TestAnew sets the flags of a descriptor: a descriptor from Anew still writes at the requested
// offset.
func TestAnew(t *testing.T) {
	f := memfd(t)
	own, err := owner.Anew(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, unix.O_APPEND); err != nil {
		t.Fatal(err)
	}
	_, size, err := owner.Facts(f)
	if err != nil {
		t.Fatal(err)
	}
	want := kit.Bytes(1, 0, 100)
	if n, werr := unix.Pwrite(int(own.Fd()), want, 7); n != len(want) || werr != nil {
		t.Fatal(n, werr)
	}
	got := make([]byte, len(want))
	if _, err = f.ReadAt(got, 7); err != nil || kit.FirstDiff(got, want) >= 0 {
		t.Errorf("byte %d differs, %v", kit.FirstDiff(got, want), err)
	}
	var now uint64
	if _, now, err = owner.Facts(f); now != size || err != nil {
		t.Errorf("%d bytes, before %d: %v", now, size, err)
	}
	if err = own.Close(); err != nil {
		t.Error(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	again, err := owner.Anew(w)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(again.Close(), w.Close(), r.Close()); err != nil {
		t.Error(err)
	}
}
