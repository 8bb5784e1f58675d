package objects_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// Binding, exporting, reading, truncating and removing concurrently, while owners and
// holders end, neither hangs nor leaks; and each read returns the bytes of one of the
// writers.
func TestSharingAtTheSameTime(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	root := r.root("sim0")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	memory := sharedFile(t)
	var owners []int
	var kills []func()
	for range 8 {
		pid, kill := kit.Process(t)
		owners, kills = append(owners, pid), append(kills, kill)
	}
	var work sync.WaitGroup
	for i := range 6 {
		work.Go(func() {
			s := &sharer{rig: r, root: root, memory: memory, owners: owners, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			for range 150 {
				if err := s.step(); err != nil && !isExpected(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Go(func() {
		for _, kill := range kills[:6] {
			kill()
		}
	})
	work.Wait()
	for i := range 4 {
		removeShared(t, r, root, fmt.Sprint(i))
	}
	// An export whose holder has ended is ended in the background.
	kit.Eventually(t, time.Minute, func() error {
		if used := r.used("sim0"); used != 0 {
			return fmt.Errorf("%v is used by nothing", used)
		}
		return nil
	})
	if bound, err := r.meta.Bindings(r.ctx()); err != nil || len(bound) != 0 {
		t.Errorf("bindings of nothing: %v, %v", bound, err)
	}
}

// removeShared ends the exports of a file and removes it, if it is there.
func removeShared(t *testing.T, r *rig, root objects.Ino, name string) {
	t.Helper()
	a, err := r.store.Lookup(r.ctx(), root, name)
	if errors.Is(err, metadata.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.EndExport(r.ctx(), a.Ino); err != nil && !errors.Is(err, metadata.ErrNoXattr) {
		t.Error(err)
	}
	if err := r.store.Unlink(r.ctx(), root, name); err != nil {
		t.Error(err)
	}
}

// A handle that writes to an empty file and is closed while the name is removed leaves
// no memory behind.
func TestUnlinkOfWhatIsJustWritten(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	root := r.root("sim0")
	for range 2000 {
		a, err := r.store.Create(r.ctx(), root, "a", metadata.Node{Mode: metadata.TypeRegular | 0o600})
		if err != nil {
			t.Fatal(err)
		}
		var writer sync.WaitGroup
		writer.Go(func() {
			f, err := r.store.OpenFile(r.ctx(), a.Ino)
			if err != nil {
				return // its name was gone
			}
			_, err = f.WriteAt(r.ctx(), kit.Bytes(1, 0, 5000), objects.Write{})
			if err = errors.Join(err, f.Close(r.ctx())); err != nil {
				t.Error(err)
			}
		})
		if err := r.store.Unlink(r.ctx(), root, "a"); err != nil {
			t.Error(err)
		}
		writer.Wait()
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v is used by nothing", used)
	}
}

// sharedFile is a memfd with the content of seed 1.
func sharedFile(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "shared")
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := f.Write(kit.Bytes(1, 0, 64<<10)); err != nil {
		t.Fatal(err)
	}
	return f
}

// isExpected reports whether concurrent operations may cause an error in each other.
func isExpected(err error) bool {
	for _, e := range []error{
		objects.ErrBusy, objects.ErrLost, objects.ErrInvalid, objects.ErrUnsupported, devices.ErrHandle, devices.ErrOutOfMemory,
		metadata.ErrExist, metadata.ErrNotExist, metadata.ErrNoXattr,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sharer does random operations on four files.
type sharer struct {
	*rig
	root   objects.Ino
	memory *os.File
	owners []int
	rng    *rand.Rand
}

func (s *sharer) step() error {
	name := fmt.Sprint(s.rng.IntN(4))
	ctx := context.Background()
	a, err := s.store.Lookup(ctx, s.root, name)
	if errors.Is(err, metadata.ErrNotExist) {
		_, err = s.store.Create(ctx, s.root, name, metadata.Node{Mode: metadata.TypeRegular | 0o600})
		return err
	}
	if err != nil {
		return err
	}
	switch s.rng.IntN(8) {
	case 0, 1:
		return s.bindTo(ctx, a.Ino)
	case 2:
		out, failure := s.store.Export(ctx, a.Ino, objects.Caller{}, objects.ExportOptions{Holder: s.someone()})
		return errors.Join(failure, out.Handle.Close())
	case 3:
		return s.store.EndExport(ctx, a.Ino)
	case 4:
		_, err = s.store.SetAttr(ctx, a.Ino, objects.Change{Size: new(uint64(0))})
		return err
	case 5:
		return s.store.Unlink(ctx, s.root, name)
	}
	return s.use(ctx, a.Ino)
}

func (s *sharer) someone() int { return s.owners[s.rng.IntN(len(s.owners))] }

func (s *sharer) bindTo(ctx context.Context, ino objects.Ino) error {
	fd, err := unix.FcntlInt(s.memory.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	n := 0
	return s.store.Bind(ctx, ino, objects.Caller{}, objects.BindRequest{
		Memory: share.Memory{
			Family: "sim", PID: s.someone(), Size: 64 << 10,
			Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &n, Size: 64 << 10}},
		},
		Handles: []devices.Handle{{Kind: devices.HandleMemfd, File: os.NewFile(uintptr(fd), "passed")}},
	})
}

// use reads a file and writes what belongs there.
func (s *sharer) use(ctx context.Context, ino objects.Ino) (err error) {
	f, err := s.store.OpenFile(ctx, ino)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(ctx)) }()
	off := s.rng.IntN(64 << 10)
	p := make([]byte, s.rng.IntN(64<<10-off))
	n, err := f.ReadAt(ctx, p, uint64(off))
	if err != nil {
		return err
	}
	for i, b := range p[:n] {
		if want := kit.Bytes(1, int64(off+i), 1)[0]; b != want && b != 0 {
			return fmt.Errorf("byte %d of file %d is nobody's", off+i, ino)
		}
	}
	_, err = f.WriteAt(ctx, kit.Bytes(1, int64(off), len(p)), objects.Write{Off: uint64(off)})
	return err
}

// A file that is bound while it is moved to another device is either bound on the
// device of the memory, or moved and empty: it is never memory of another device.
func TestBindWhileMoved(t *testing.T) {
	kit.Check(t)
	r := wrapped(t, sim.New(0, small(false)), newCard(newDriver(), "card0"))
	from, to := r.root("sim0"), r.root("card0")
	pid, _ := kit.Process(t)
	s := &sharer{rig: r, root: from, memory: sharedFile(t), owners: []int{pid}, rng: rand.New(rand.NewPCG(1, 1))}
	for i := range 500 {
		a, err := r.store.Create(r.ctx(), from, "f", metadata.Node{Mode: metadata.TypeRegular | 0o600})
		if err != nil {
			t.Fatal(err)
		}
		var bound, moved error
		begin := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() { <-begin; bound = s.bindTo(r.ctx(), a.Ino) })
		work.Go(func() {
			<-begin
			for range i % 50 {
				runtime.Gosched()
			}
			moved = r.store.Rename(r.ctx(), metadata.Rename{From: from, Name: "f", To: to, NewName: "f"})
		})
		close(begin)
		work.Wait()
		for _, err := range []error{bound, moved} {
			if err != nil && !isExpected(err) && !errors.Is(err, metadata.ErrCrossDevice) {
				t.Fatal(err)
			}
		}
		at, want := from, objects.StateBound
		if moved == nil {
			at, want = to, objects.StateLive
		}
		if got := r.attr(a.Ino).State; got != want || (bound == nil) == (moved == nil) {
			t.Fatalf("round %d: bound: %v, moved: %v; the file is %s", i, bound, moved, got)
		}
		if err := r.store.Unlink(r.ctx(), at, "f"); err != nil {
			t.Fatal(err)
		}
	}
}
