package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/tensors"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestHeld kills the daemon of a mount that a holder keeps, again and again, under programs that
// use the mount in every way that must not be noticed: no call fails, and all bytes are right. For
// 300 kills, 200 to 2000 ms apart:
//
//	go test ./tests -run TestHeld -kills 300 -timeout 1h
func TestHeld(t *testing.T) {
	kit.Require(t, "opencl")
	for _, passthrough := range []string{"auto", "off"} {
		t.Run("passthrough="+passthrough, func(t *testing.T) {
			h := &held{t: t, devices: []string{"host", "sim0", "sim1", "ocl0"}, m: mnt.Prepare(t, mnt.Options{
				Devices: []string{"host,size=512MiB", "sim:0,size=256MiB", "sim:1,size=256MiB,mapped=true", "opencl:0,size=256MiB"},
				Extra:   []string{"--passthrough", passthrough},
			})}
			h.m.Start()
			t.Cleanup(h.clear)
			h.torture(kit.Rounds(1, 2, 30), map[string]func(w *heldUser) error{
				"host/names": (*heldUser).names, "host/write": (*heldUser).write, "host/append": (*heldUser).append,
				"host/list": (*heldUser).list, "host/nameless": (*heldUser).nameless, "host/map": (*heldUser).mapped,
				"sim0/names": (*heldUser).names, "sim0/write": (*heldUser).write, "sim0/append": (*heldUser).append,
				"host/namelessdir": (*heldUser).namelessDir, "sim0/namelessdir": (*heldUser).namelessDir,
				"sim0/nameless": (*heldUser).nameless, "sim0/exchange": (*heldUser).exchange, "sim0/move": (*heldUser).move,
				"sim0/tensor": (*heldUser).tensor, "host/tensor": (*heldUser).tensor,
				"sim1/write": (*heldUser).write, "sim1/map": (*heldUser).mapped, "sim1/names": (*heldUser).names,
				"ocl0/names": (*heldUser).names, "ocl0/write": (*heldUser).write, "ocl0/nameless": (*heldUser).nameless,
			})
			h.checkEnd()
		})
	}
}

// held is a mount whose daemon is killed. Files are moved to the last of its devices.
type held struct {
	t       *testing.T
	m       *mnt.M
	devices []string
}

// torture runs the users until the daemon has been killed often enough: usually so often.
func (h *held) torture(usual int, users map[string]func(*heldUser) error) {
	h.t.Helper()
	h.use(users, func() {
		count := *kills
		if count == 0 {
			count = usual
		}
		last := 0
		for range count {
			if rand.IntN(4) > 0 { // the holder gives up if it never comes so far
				kit.Eventually(h.t, time.Minute, func() error { _, err := h.m.Client().Version(h.t.Context()); return err })
			}
			<-time.After(time.Duration(200+rand.IntN(1800)) * time.Millisecond) // a random moment
			kit.Eventually(h.t, time.Minute, func() bool {
				pid := h.m.Living()
				if pid == 0 || pid == last {
					return false
				}
				last = pid
				return h.strike(pid)
			})
		}
	})
}

// strikes are the ways in which a daemon can die: as scripts, because a program that has mapped files of
// a stopped daemon may not get to run.
var strikes = []string{
	// By a fault of its own: the runtime prints its goroutines and exits. A library of a device may
	// have a handler, which takes the first signal.
	"kill -ABRT $0 || exit 1; while kill -ABRT $0 2>/dev/null; do sleep 0.05; done",
	"kill -STOP $0 && sleep 0.3 && kill -KILL $0",
	"kill -STOP $0 && sleep 0.3 && kill -CONT $0 && kill -KILL $0",
	"kill -KILL $0", "kill -KILL $0",
}

// strike ends a daemon in one of the ways in which it can die. It returns false if it has ended already.
func (h *held) strike(pid int) bool {
	return exec.Command("sh", "-c", strikes[rand.IntN(len(strikes))], strconv.Itoa(pid)).Run() == nil
}

// use runs the users while disturb does its work.
func (h *held) use(users map[string]func(*heldUser) error, disturb func()) {
	h.t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for name, use := range users {
		all.Go(func() {
			w := &heldUser{
				t: h.t, python3: pythonFolder(h.t), dir: h.m.Path(name), mount: h.m.Dir, socket: socketOf(h.m), last: h.devices[len(h.devices)-1], stop: stop,
				rng: rand.New(rand.NewPCG(1, uint64(len(name)))),
			}
			if err := os.Mkdir(w.dir, 0o755); err != nil {
				h.t.Error(err)
				return
			}
			for !w.stopped() && !h.t.Failed() {
				if err := use(w); err != nil {
					h.t.Errorf("%s, round %d: %v", name, w.round, err)
				}
				w.round++
			}
			if err := w.close(); err != nil {
				h.t.Errorf("%s, at the end: %v", name, err)
			}
			h.t.Logf("%s: %d rounds", name, w.round)
		})
	}
	disturb()
	close(stop)
	all.Wait()
}

// holderMemory bounds the memory of a holder, beside the pages of its program: these tests are a larger one than hmcfs, with which
// it has 11 to 15 MiB in all.
const holderMemory = 10 << 20

// checkEnd checks that nothing is left of what the users have used and freed, and that the unmount
// ends the daemon and the holder.
func (h *held) checkEnd() {
	h.t.Helper()
	for _, device := range h.devices {
		h.checkEmpty(device)
	}
	holder := h.m.Status().Holder
	if holder == nil || holder.Deaths == 0 {
		h.t.Fatalf("the holder in the status is %+v", holder)
	}
	if has := ownBytes(h.t, holder.PID); has > holderMemory && !kit.Race() {
		h.t.Errorf("the holder has %d KiB, at most %d", has>>10, holderMemory>>10)
	}
	if out, err := h.m.Run("umount", h.m.Dir); err != nil {
		h.t.Fatalf("unmount: %v\n%s", err, out)
	}
	kit.Eventually(h.t, time.Minute, func() error {
		if unix.Kill(holder.PID, 0) == nil {
			return errors.New("the holder has not ended")
		}
		return nil
	})
}

// checkEmpty removes the files of a device and checks that its memory is free then.
func (h *held) checkEmpty(device string) {
	h.t.Helper()
	var found []string
	dir := h.m.Path(device)
	must(h.t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		found = append(found, path)
		return err
	}))
	for _, path := range slices.Backward(found[1:]) {
		if name := strings.TrimPrefix(path, dir); strings.HasPrefix(name, "/name") && strings.Count(name, "/") > 1 {
			h.t.Errorf("left behind is %s", path)
		}
		must(h.t, os.Remove(path))
	}
	kit.Eventually(h.t, time.Minute, func() error {
		if used := h.m.Device(device).Used; used != 0 {
			return fmt.Errorf("%v of %s is in use although there are no files", used, device)
		}
		return nil
	})
}

// clear ends what a failed test has left.
func (h *held) clear() {
	if h.m.Client() != nil && h.m.Living() != 0 {
		h.m.Run("umount", "--force", h.m.Dir) //nolint:errcheck // the base directory is cleared in any case
	}
}

// heldUser is a program that uses one directory.
type heldUser struct {
	t                        *testing.T
	dir, mount, socket, last string
	python3                  string // the folder of the package

	round int
	rng   *rand.Rand
	stop  <-chan struct{}

	file *os.File
	data []byte
	view []byte
	at   int
	own  []*heldSession
	// events and open are those of programs with sessions.
	events *client.Watch
	open   *client.File
}

func (w *heldUser) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// fresh returns bytes that depend on their position and on the round.
func (w *heldUser) fresh(n int) []byte { return kit.Bytes(w.rng.Uint64(), 0, n) }

// names makes and removes names in every way.
func (w *heldUser) names() error {
	dir := filepath.Join(w.dir, strconv.Itoa(w.round))
	a, b, l, s := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "l"), filepath.Join(dir, "s")
	data := w.fresh(1 + w.rng.IntN(20000))
	var got []byte
	var names []string
	return inOrder(
		func() error { return os.Mkdir(dir, 0o755) },
		func() error { return kit.WriteNew(a, data) },
		func() error { return os.Link(a, l) },
		func() error { return os.Symlink("a", s) },
		func() error { return unix.Setxattr(a, "user.note", []byte(dir), unix.XATTR_CREATE) },
		func() error { return os.Rename(a, b) },
		func() (err error) { got, err = os.ReadFile(b); return err },
		func() error { return kit.Same(b, got, data) },
		func() error { return unix.Removexattr(b, "user.note") },
		func() (err error) { names, err = sortedNames(dir); return err },
		func() error {
			if !slices.Equal(names, []string{"b", "l", "s"}) {
				return fmt.Errorf("%s has %v", dir, names)
			}
			return nil
		},
		func() error { return os.Remove(l) }, func() error { return os.Remove(s) }, func() error { return unix.Unlink(b) },
		func() error { return unix.Rmdir(dir) },
	)
}

// write writes to and reads from a file that is open all the time.
func (w *heldUser) write() error {
	const size = 2 << 20
	if w.file == nil {
		f, err := os.OpenFile(filepath.Join(w.dir, "file"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		w.file, w.data = f, make([]byte, size)
		if err = f.Truncate(size); err != nil {
			return err
		}
	}
	off, piece := w.rng.IntN(size-70000), w.fresh(1+w.rng.IntN(66000))
	if _, err := w.file.WriteAt(piece, int64(off)); err != nil {
		return err
	}
	copy(w.data[off:], piece)
	off = w.rng.IntN(size - 70000)
	got := make([]byte, 65536)
	if _, err := w.file.ReadAt(got, int64(off)); err != nil {
		return err
	}
	return kit.Same(w.file.Name(), got, w.data[off:off+len(got)])
}

// append appends to a file that is open all the time.
func (w *heldUser) append() error {
	name := filepath.Join(w.dir, "file")
	if w.file == nil {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		w.file = f
	}
	piece := w.fresh(1 + w.rng.IntN(3000))
	if _, err := w.file.Write(piece); err != nil {
		return err
	}
	w.data = append(w.data, piece...)
	if w.round%50 != 0 {
		return nil
	}
	got, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(w.data) > 8<<20 {
		err = w.file.Truncate(0)
		w.data = nil
		return errors.Join(err, kit.Same(name, got[:0], nil))
	}
	return kit.Same(name, got, w.data)
}

// list lists a large directory.
func (w *heldUser) list() error {
	const many = 300
	if w.round == 0 {
		for i := range many {
			if err := kit.WriteNew(filepath.Join(w.dir, strconv.Itoa(i)), nil); err != nil {
				return err
			}
		}
	}
	names, err := sortedNames(w.dir)
	if err != nil {
		return err
	}
	if n := len(slices.Compact(names)); n != many {
		return fmt.Errorf("%d different names of %d", n, many)
	}
	return nil
}

// nameless uses a file that has no name any more.
func (w *heldUser) nameless() error {
	name := filepath.Join(w.dir, "file")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // its content is gone then
	data := w.fresh(100000)
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = unix.Unlink(name); err != nil {
		return err
	}
	for range 20 {
		got := make([]byte, len(data)+1)
		n, _ := f.ReadAt(got, 0) // io.EOF
		if err = kit.Same(name, got[:n], data); err != nil {
			return err
		}
		st, err := f.Stat()
		if err != nil || st.Size() != int64(len(data)) {
			return fmt.Errorf("stat of a file without a name: %v, %w", st, err)
		}
		off := w.rng.IntN(len(data) - 100)
		if _, err = f.WriteAt(w.fresh(100), int64(off)); err != nil {
			return err
		}
		if _, err = f.ReadAt(data[off:off+100], int64(off)); err != nil {
			return err
		}
		<-time.After(10 * time.Millisecond) // the file shall be open when the daemon is killed
	}
	return nil
}

// namelessDir uses a directory that has no name any more.
func (w *heldUser) namelessDir() error {
	name := filepath.Join(w.dir, "dir")
	if err := os.Mkdir(name, 0o750); err != nil {
		return err
	}
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // it is gone then
	if err = unix.Rmdir(name); err != nil {
		return err
	}
	for i := range 20 {
		mode := uint32(0o700 + i)
		var st unix.Stat_t
		if err = errors.Join(unix.Fchmod(int(d.Fd()), mode), unix.Fstat(int(d.Fd()), &st)); err != nil {
			return err
		}
		if st.Mode != unix.S_IFDIR|mode || st.Nlink != 0 {
			return fmt.Errorf("a directory without a name has mode %#o and %d links", st.Mode, st.Nlink)
		}
		again, err := unix.Openat(int(d.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			err = unix.Close(again)
		}
		if err != nil {
			return err
		}
		if names, err := d.Readdirnames(-1); err != nil && !errors.Is(err, unix.ENOENT) || len(names) != 0 { // as the kernel says of all file systems
			return fmt.Errorf("a directory without a name has %v, %w", names, err)
		}
		<-time.After(10 * time.Millisecond) // the directory shall be open when the daemon is killed
	}
	return nil
}

// exchange exchanges two names, which must happen once.
func (w *heldUser) exchange() error {
	a, b := filepath.Join(w.dir, "a"), filepath.Join(w.dir, "b")
	if w.round == 0 {
		if err := errors.Join(kit.WriteNew(a, []byte("0")), kit.WriteNew(b, []byte("1"))); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	w.at ^= 1
	got, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	return kit.Same(a, got, []byte(strconv.Itoa(w.at)))
}

// move moves a file from device to device and copies it back.
func (w *heldUser) move() error {
	data := w.fresh(1 + w.rng.IntN(3<<20))
	name := fmt.Sprintf("moved-%d", w.round)
	here, there := filepath.Join(w.dir, name), filepath.Join(w.mount, w.last, name)
	back := filepath.Join(w.mount, "host", name)
	var got []byte
	return inOrder(
		func() error { return kit.WriteNew(here, data) },
		func() error { return os.Rename(here, there) },
		func() (err error) { got, err = os.ReadFile(there); return err },
		func() error { return kit.Same(there, got, data) },
		func() error { return kit.CopyRange(there, back, len(data)) },
		func() (err error) { got, err = os.ReadFile(back); return err },
		func() error { return kit.Same(back, got, data) },
		func() error { return os.Remove(back) }, func() error { return os.Remove(there) },
	)
}

// mapped stores through a map and reads the file.
func (w *heldUser) mapped() error {
	const size = 1 << 20
	if w.file == nil {
		f, err := os.OpenFile(filepath.Join(w.dir, "file"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		w.file = f
		if err = f.Truncate(size); err != nil {
			return err
		}
		if w.view, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return err
		}
		w.data = make([]byte, size)
	}
	off, piece := w.rng.IntN(size-5000), w.fresh(4096)
	copy(w.view[off:], piece)
	copy(w.data[off:], piece)
	if err := unix.Msync(w.view, unix.MS_SYNC); err != nil {
		return err
	}
	got, err := os.ReadFile(w.file.Name())
	if err != nil {
		return err
	}
	return kit.Same(w.file.Name(), got, w.data)
}

// tensor reads a tensor of a file that is open, and mapped, all the time.
func (w *heldUser) tensor() error {
	const size = 1 << 20
	if w.file == nil {
		x := tensors.Tensor{Shape: []uint64{size}}
		x.Type, _ = tensors.TypeNamed("uint8")
		w.data = append(x.Header(), w.fresh(size)...)
		name := filepath.Join(w.dir, "x.npy")
		if err := kit.WriteNew(name, w.data); err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(name+tensors.ViewSuffix, "x.npy"))
		if err != nil {
			return err
		}
		w.file = f
		if w.view, err = unix.Mmap(int(f.Fd()), 0, len(w.data), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return err
		}
	}
	if err := unix.Madvise(w.view, unix.MADV_DONTNEED); err != nil {
		return err
	}
	off := w.rng.IntN(size - 5000)
	if err := kit.Same("the map of "+w.file.Name(), w.view[off:off+5000], w.data[off:off+5000]); err != nil {
		return err
	}
	got := make([]byte, 5000)
	if _, err := w.file.ReadAt(got, int64(off)); err != nil {
		return err
	}
	return kit.Same(w.file.Name(), got, w.data[off:off+5000])
}

// close ends the use, and removes nothing.
func (w *heldUser) close() error {
	var errs []error
	if w.view != nil {
		errs = append(errs, unix.Munmap(w.view))
	}
	if w.file != nil {
		errs = append(errs, w.file.Close())
	}
	return errors.Join(append(errs, w.leave())...)
}

// inOrder calls the steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// sortedNames returns the names in a directory, sorted.
func sortedNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}
