package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const claimWait = time.Minute

// theirs is memory of another process on a card, as seen by that process.
type theirs struct {
	card   *card
	mem    *devices.Memory
	handle devices.Handle
}

func newTheirs(t *testing.T, d *driver) *theirs {
	t.Helper()
	c := newCard(d, "theirs")
	mem, err := c.Alloc(t.Context(), devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	th := &theirs{card: c, mem: mem}
	if th.handle, err = c.Export(t.Context(), mem); err != nil {
		t.Fatal(err)
	}
	th.handle.Device = "CARD-card0"
	th.fill(t, 1)
	t.Cleanup(func() {
		if err := errors.Join(mem.Release(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return th
}

// withTheirs makes a store on a card, and memory of another process that the
// card's driver reaches.
func withTheirs(t *testing.T) (r *rig, mine *card, th *theirs) {
	t.Helper()
	d := newDriver()
	mine = newCard(d, "card0")
	r = wrapped(t, mine)
	return r, mine, newTheirs(t, d)
}

// opens counts how often the driver has the memory open.
func (th *theirs) opens() int { return th.card.driver.opens(string(th.handle.Bytes)) }

func (th *theirs) fill(t *testing.T, seed uint64) {
	t.Helper()
	if err := th.card.CopyIn(t.Context(), th.mem.All(), kit.Bytes(seed, 0, int(th.mem.Size()))); err != nil {
		t.Fatal(err)
	}
}

func (th *theirs) bytes(t *testing.T) []byte {
	t.Helper()
	p := make([]byte, th.mem.Size())
	if err := th.card.CopyOut(t.Context(), p, th.mem.All()); err != nil {
		t.Fatal(err)
	}
	return p
}

// bind makes a file on the card and binds memory to it.
func (r *rig) bind(name string, m share.Memory) objects.Ino {
	r.t.Helper()
	a, err := r.store.Create(r.ctx(), r.root("card0"), name, metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.store.Bind(r.ctx(), a.Ino, objects.Caller{}, objects.BindRequest{Memory: m}); err != nil {
		r.t.Fatal(err)
	}
	return a.Ino
}

func (r *rig) wantState(ino objects.Ino, want objects.State) {
	r.t.Helper()
	if got := r.attr(ino).State; got != want {
		r.t.Errorf("object %d is %s, want %s", ino, got, want)
	}
}

// Memory of a vendor's handle is the content of the file until its owner ends, and is
// not touched except by writes.
func TestBindVendorHandle(t *testing.T) {
	kit.Check(t)
	r, _, th := withTheirs(t)
	pid, kill := kit.Process(t)
	ino := r.bind("f", piecesOf(th.handle, pid,
		devices.Range{Off: 4096, Len: 100_000}, devices.Range{Off: 500_000, Len: 300_000}))
	r.wantState(ino, objects.StateBound)
	if a := r.attr(ino); a.Size != 400_000 || a.Resident != 400_000 || r.used("card0") != 0 {
		t.Errorf("size %d, resident %d, %v of the device used", a.Size, a.Resident, r.used("card0"))
	}
	f := r.open(ino)
	defer r.close(f)
	before := th.bytes(t)
	want := append(bytes.Clone(before[4096:][:100_000]), before[500_000:][:300_000]...)
	if i := kit.FirstDiff(r.read(f, 0, 400_000), want); i >= 0 {
		t.Errorf("byte %d is not the owner's", i)
	}
	r.write(f, 99_990, kit.Bytes(2, 0, 20)) // over the seam
	copy(before[4096+99_990:][:10], kit.Bytes(2, 0, 10))
	copy(before[500_000:][:10], kit.Bytes(2, 10, 10))
	if i := kit.FirstDiff(th.bytes(t), before); i >= 0 {
		t.Errorf("byte %d of the owner's memory is not what it should be", i)
	}
	kill()
	kit.Eventually(t, claimWait, func() bool { return r.attr(ino).State == objects.StateLost })
	if _, err := f.ReadAt(r.ctx(), make([]byte, 10), 0); !errors.Is(err, objects.ErrLost) {
		t.Errorf("read after the owner's end: %v", err)
	}
	if _, err := f.WriteAt(r.ctx(), make([]byte, 10), objects.Write{}); !errors.Is(err, objects.ErrLost) {
		t.Errorf("write after the owner's end: %v", err)
	}
	kit.Eventually(t, claimWait, func() bool { return th.opens() == 0 })
	if i := kit.FirstDiff(th.bytes(t), before); i >= 0 {
		t.Errorf("byte %d of the owner's memory has changed by unbinding", i)
	}
}

// A read under way when the owner ends keeps the mapping until it is done.
func TestOwnerEndsWhileRead(t *testing.T) {
	kit.Check(t)
	r, mine, th := withTheirs(t)
	pid, kill := kit.Process(t)
	ino := r.bind("f", piecesOf(th.handle, pid, devices.Range{Len: devices.MiB}))
	f := r.open(ino)
	defer r.close(f)
	inside, goOn := make(chan struct{}), make(chan struct{})
	mine.reading = func() { close(inside); <-goOn }
	result := make(chan error, 1)
	go func() {
		_, err := f.ReadAt(context.Background(), make([]byte, 4096), 0)
		result <- err
	}()
	<-inside
	mine.reading = nil
	kill()
	kit.Eventually(t, claimWait, func() bool { return r.attr(ino).State == objects.StateLost })
	if n := th.opens(); n != 1 {
		t.Errorf("the mapping is open %d times under a reader", n)
	}
	close(goOn)
	if err := <-result; err != nil {
		t.Errorf("the reader gets %v", err)
	}
	kit.Eventually(t, claimWait, func() bool { return th.opens() == 0 })
}

// A refused bind leaves the file, and everything that was opened, unchanged.
func TestBindVendorHandleRefuses(t *testing.T) {
	kit.Check(t)
	r, _, th := withTheirs(t)
	pid, kill := kit.Process(t)
	all := devices.Range{Len: devices.MiB}
	a, err := r.store.Create(r.ctx(), r.root("card0"), "f", metadata.Node{Mode: metadata.TypeRegular | 0o600, UID: 1000})
	if err != nil {
		t.Fatal(err)
	}
	good := piecesOf(th.handle, pid, all)
	for name, tc := range map[string]struct {
		change func(*share.Memory)
		who    objects.Caller
		want   error
	}{
		"another family": {change: func(m *share.Memory) { m.Family = "cuda" }, want: devices.ErrHandle},
		"another device": {change: func(m *share.Memory) { m.Device = "CARD-1" }, want: devices.ErrHandle},
		"no owner":       {change: func(m *share.Memory) { m.PID = 0 }, want: devices.ErrHandle},
		"wrong bytes":    {change: func(m *share.Memory) { m.Pieces[0].Handle = "00" }, want: devices.ErrHandle},
		"beyond the end": {change: func(m *share.Memory) { m.Pieces[0].Offset, m.Pieces[0].Allocation = 1, 0 }, want: devices.ErrHandle},
		"a second bad piece": {change: func(m *share.Memory) {
			m.Pieces = append(m.Pieces, m.Pieces[0])
			m.Pieces[1].Handle = "00"
			m.Size *= 2
		}, want: devices.ErrHandle},
		"wrong sum": {change: func(m *share.Memory) { m.Size-- }, want: devices.ErrHandle},
		"a memfd": {change: func(m *share.Memory) {
			n := 3
			m.Pieces[0] = share.Piece{Kind: devices.HandleMemfd, FD: &n, Size: devices.MiB}
		}, want: devices.ErrHandle},
		"a shape":         {change: func(m *share.Memory) { m.Dtype, m.Shape = "float32", "1,1" }, want: objects.ErrInvalid},
		"blobs":           {change: func(m *share.Memory) { m.Blobs = "1,2" }, want: objects.ErrInvalid},
		"a stranger":      {who: objects.Caller{UID: 1001}, want: objects.ErrForbidden},
		"not his process": {who: objects.Caller{UID: 1000}, want: objects.ErrForbidden},
		"our own process": {change: func(m *share.Memory) { m.PID = os.Getpid() }, want: devices.ErrHandle},
	} {
		m := good
		m.Pieces = append([]share.Piece(nil), good.Pieces...)
		if tc.change != nil {
			tc.change(&m)
		}
		err := r.store.Bind(r.ctx(), a.Ino, tc.who, objects.BindRequest{Memory: m})
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if n := th.opens(); n != 0 || r.attr(a.Ino).Size != 0 {
			t.Errorf("%s: %d open, size %d", name, n, r.attr(a.Ino).Size)
		}
	}
	kill()
	if err := r.store.Bind(r.ctx(), a.Ino, objects.Caller{}, objects.BindRequest{Memory: good}); !errors.Is(err, devices.ErrHandle) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

// Descriptors passed with the request are used as they are, and closed in any case.
func TestBindPassedDescriptors(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	memory := func(n int) (devices.Handle, []byte) {
		fd, err := unix.MemfdCreate("passed", unix.MFD_CLOEXEC)
		if err == nil {
			err = unix.Ftruncate(fd, int64(n))
		}
		if err != nil {
			t.Fatal(err)
		}
		view, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Munmap(view); err != nil {
				t.Error(err)
			}
		})
		return devices.Handle{Kind: devices.HandleMemfd, File: os.NewFile(uintptr(fd), "passed")}, view
	}
	a, err := r.store.Create(r.ctx(), r.root("sim0"), "f", metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		t.Fatal(err)
	}
	zero, one := 0, 1
	m := share.Memory{Family: "sim", Size: 12_000, Pieces: []share.Piece{
		{Kind: devices.HandleMemfd, FD: &one, Offset: 100, Size: 4000},
		{Kind: devices.HandleMemfd, FD: &zero, Size: 8000},
	}}
	h0, _ := memory(4099)
	h1, _ := memory(8000)
	err = r.store.Bind(r.ctx(), a.Ino, objects.Caller{}, objects.BindRequest{Memory: m, Handles: []devices.Handle{h0, h1}})
	if !errors.Is(err, devices.ErrHandle) {
		t.Errorf("a descriptor that is a byte too short: %v", err)
	}
	h0, v0 := memory(4100)
	h1, v1 := memory(8000)
	kit.FillAt(v0, 1, 0)
	kit.FillAt(v1, 2, 0)
	err = r.store.Bind(r.ctx(), a.Ino, objects.Caller{}, objects.BindRequest{Memory: m, Handles: []devices.Handle{h0, h1}})
	if err != nil {
		t.Fatal(err)
	}
	f := r.open(a.Ino)
	defer r.close(f)
	if i := kit.FirstDiff(r.read(f, 0, 12_000), append(bytes.Clone(v0[100:]), v1...)); i >= 0 {
		t.Errorf("byte %d is not what was passed", i)
	}
	h0, _ = memory(10)
	err = r.store.Bind(r.ctx(), a.Ino, objects.Caller{}, objects.BindRequest{Memory: m, Handles: []devices.Handle{h0}})
	if !errors.Is(err, devices.ErrHandle) {
		t.Errorf("one descriptor for two pieces: %v", err)
	}
	if f.Foreign() != true {
		t.Error("a bound file is not told to change by itself")
	}
}

// The next store finds the memory bound by one that crashed.
func TestBindAgain(t *testing.T) {
	kit.Check(t)
	r, _, th := withTheirs(t)
	lives, _ := kit.Process(t)
	ends, kill := kit.Process(t)
	all := devices.Range{Len: devices.MiB}
	kept, gone := r.bind("kept", piecesOf(th.handle, lives, all)), r.bind("gone", piecesOf(th.handle, ends, all))
	dead := r.store
	if err := dead.Close(context.Background(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	kill()
	th.fill(t, 5)
	r.reopen()
	r.wantState(kept, objects.StateBound)
	r.wantState(gone, objects.StateLost)
	f := r.open(kept)
	if i := kit.DiffAt(r.read(f, 0, 1<<20), 5, 0); i >= 0 {
		t.Errorf("byte %d is not the owner's", i)
	}
	r.close(f)
	g := r.open(gone)
	if _, err := g.ReadAt(r.ctx(), make([]byte, 1), 0); !errors.Is(err, objects.ErrLost) {
		t.Errorf("read of what is gone: %v", err)
	}
	r.close(g)
	zero := uint64(0)
	if _, err := r.store.SetAttr(r.ctx(), gone, objects.Change{Size: &zero}); err != nil {
		t.Fatal(err)
	}
	r.wantState(gone, objects.StateLive)
	if err := r.store.Unlink(r.ctx(), r.root("card0"), "kept"); err != nil {
		t.Fatal(err)
	}
	if n := th.opens(); n != 0 {
		t.Errorf("%d mappings are open after the last unlink", n)
	}
}

// After the next boot, a file of the same name and inode number in the same tmpfs is
// another file.
func TestBindNotAgainAfterBoot(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	shm, err := os.CreateTemp("/dev/shm", "hmcfs-bind-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err = errors.Join(shm.Close(), os.Remove(shm.Name())); err != nil {
			t.Error(err)
		}
	})
	if _, err = shm.Write(kit.Bytes(1, 0, 8000)); err != nil {
		t.Fatal(err)
	}
	var inos []objects.Ino
	for _, name := range []string{"same", "next"} {
		a, cerr := r.store.Create(r.ctx(), r.root("sim0"), name, metadata.Node{Mode: metadata.TypeRegular | 0o600})
		if cerr != nil {
			t.Fatal(cerr)
		}
		m := share.Memory{Family: "sim", Size: 8000, Pieces: []share.Piece{
			{Kind: devices.HandleMemfd, Path: shm.Name(), Size: 8000},
		}}
		if err = r.store.Bind(r.ctx(), a.Ino, objects.Caller{}, objects.BindRequest{Memory: m}); err != nil {
			t.Fatal(err)
		}
		inos = append(inos, a.Ino)
	}
	if err = r.store.Close(context.Background(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	boot, err := owner.Boot()
	if err != nil {
		t.Fatal(err)
	}
	record, err := r.meta.Binding(r.ctx(), inos[1])
	if err != nil {
		t.Fatal(err)
	}
	record = bytes.Replace(record, []byte(boot), []byte("another"), 1)
	if err = r.meta.Unbind(r.ctx(), inos[1], false); err == nil {
		_, err = r.meta.Bind(r.ctx(), inos[1], record, func(*metadata.Inode) error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.wantState(inos[0], objects.StateBound)
	r.wantState(inos[1], objects.StateLost)
}

// bindPath makes a file in /dev/shm, and binds a new object to it by its path.
func (r *rig) bindPath(path string) objects.Ino {
	r.t.Helper()
	err := os.WriteFile(path, make([]byte, 4096), 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	a, err := r.store.Create(r.ctx(), r.root("sim0"), filepath.Base(path), metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		r.t.Fatal(err)
	}
	m := share.Memory{Family: "sim", Size: 4096, Pieces: []share.Piece{{Kind: devices.HandleMemfd, Path: path, Size: 4096}}}
	if err = r.store.Bind(r.ctx(), a.Ino, objects.Caller{}, objects.BindRequest{Memory: m}); err != nil {
		r.t.Fatal(err)
	}
	return a.Ino
}

// inShm makes a directory in /dev/shm.
func inShm(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "hmcfs-bind-") //nolint:usetesting // it must be on a tmpfs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// silence covers a directory with a file system that does not answer. It ends with
// the test.
func silence(t *testing.T, dir string) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())
	if err = unix.Mount("silent", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(errors.Join(err, server.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
}

// A path on a file system that no longer answers loses the object that is bound by it,
// and no other one of that user, in either order.
func TestSilentPathAtTheStart(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "root", "fuse")
	r := newRig(t, small(true))
	dir := inShm(t)
	covered := filepath.Join(dir, "covered")
	if err := os.Mkdir(covered, 0o700); err != nil {
		t.Fatal(err)
	}
	var bound []objects.Ino
	for _, name := range []string{"a", "covered/b", "c", "covered/d", "e"} {
		bound = append(bound, r.bindPath(filepath.Join(dir, name)))
	}
	if err := r.store.Close(r.ctx(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	silence(t, covered)
	r.guard = owner.NewGuard(func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", asGuard)
		cmd.Stderr = os.Stderr
		return cmd
	}, 5*time.Second)
	t.Cleanup(func() {
		if err := r.guard.Close(); err != nil {
			t.Error(err)
		}
	})
	begun := time.Now()
	r.reopen()
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the start has taken %v", took)
	}
	for i, want := range []objects.State{objects.StateBound, objects.StateLost, objects.StateBound, objects.StateLost, objects.StateBound} {
		r.wantState(bound[i], want)
	}
}

// A user whose file systems no longer answer delays a start only once, however many
// objects are bound by paths on them.
func TestSilentFileSystemsAtTheStart(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(true))
	dir := inShm(t)
	var bound []objects.Ino
	for i := range 5 {
		bound = append(bound, r.bindPath(filepath.Join(dir, fmt.Sprint("f", i))))
	}
	if err := r.store.Close(r.ctx(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	var asked []*exec.Cmd // one that takes nothing is followed by another one
	r.guard = owner.NewGuard(func() *exec.Cmd {
		asked = append(asked, exec.Command("/bin/sleep", "60"))
		return asked[len(asked)-1]
	}, 100*time.Millisecond)
	t.Cleanup(func() {
		_ = r.guard.Close()
		for _, cmd := range asked {
			_ = cmd.Process.Kill()
		}
	})
	r.reopen()
	if len(asked) != 1 {
		t.Errorf("%d files were waited for", len(asked))
	}
	for _, ino := range bound {
		r.wantState(ino, objects.StateLost)
	}
}
