package fs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap/zaptest"

	"github.com/hmcfs/hmcfs/metadata"
)

// fakeRegistrar is a kernel that accepts files, or does not.
type fakeRegistrar struct {
	mu     sync.Mutex
	refuse error
	last   int32
	held   map[int32]bool
}

func (r *fakeRegistrar) register(*os.File) (int32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return 0, r.refuse
	}
	r.last++
	r.held[r.last] = true
	return r.last, nil
}

func (r *fakeRegistrar) unregister(id int32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held[id] {
		return errors.New("unregistered twice")
	}
	delete(r.held, id)
	return nil
}

func newBackings(t *testing.T) (*backings, *fakeRegistrar, *os.File) {
	t.Helper()
	r := &fakeRegistrar{held: map[int32]bool{}}
	file, err := os.Create(filepath.Join(t.TempDir(), "backing"))
	must(t, err)
	t.Cleanup(func() { must(t, file.Close()) })
	return &backings{log: zaptest.NewLogger(t), kernel: r, open: map[metadata.Ino]*backing{}}, r, file
}

func TestBackingsShareOneRegistration(t *testing.T) {
	b, r, file := newBackings(t)
	first := b.acquire(5, file, false)
	if first == 0 || b.acquire(5, file, true) != first {
		t.Fatal("two opens of one inode have two registrations")
	}
	if b.acquire(6, file, false) == first {
		t.Fatal("two inodes share a registration")
	}
	if !b.isWritten(5) || b.isWritten(6) || b.isWritten(7) {
		t.Error("wrong inodes are open for writing")
	}
	b.release(5, true)
	if b.isWritten(5) || !r.held[first] {
		t.Error("the last writer is gone, a reader is not")
	}
	b.release(5, false)
	b.release(6, false)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(r.held) != 0 || len(b.open) != 0 {
		t.Errorf("%d registrations and %d inodes left", len(r.held), len(b.open))
	}
}

// TestBackingsKeepTheMode loses the privilege while files are open.
func TestBackingsKeepTheMode(t *testing.T) {
	b, r, file := newBackings(t)
	first := b.acquire(5, file, false)
	r.refuse = syscall.EPERM
	if b.acquire(6, file, false) != 0 {
		t.Error("registered without the privilege")
	}
	if b.reason.Load() == nil {
		t.Error("no reason is kept")
	}
	r.refuse = nil
	if b.acquire(6, file, false) != 0 || b.acquire(7, file, false) != 0 {
		t.Error("one inode is served in two ways, or passthrough came back")
	}
	if b.acquire(5, file, false) != first {
		t.Error("an open file lost its registration")
	}
	for _, ino := range []metadata.Ino{5, 5, 6, 6, 7} {
		b.release(ino, false)
	}
	if len(r.held) != 0 {
		t.Errorf("%d registrations left", len(r.held))
	}
}

// TestBackingsAfterAnotherError keeps passthrough on for other files.
func TestBackingsAfterAnotherError(t *testing.T) {
	b, r, file := newBackings(t)
	r.refuse = syscall.ENFILE
	if b.acquire(5, file, false) != 0 || b.reason.Load() != nil {
		t.Error("one failure turns passthrough off")
	}
	r.refuse = nil
	if b.acquire(6, file, false) == 0 {
		t.Error("the next file is not registered")
	}
	if b.acquire(5, file, false) != 0 {
		t.Error("one inode is served in two ways")
	}
}

// TestBackingsOfTheDead has the registrations that a process can leave when it dies: those of open files, one that was about to
// be removed, one that was not recorded yet, and one of a file that can't be opened again.
func TestBackingsOfTheDead(t *testing.T) {
	b, r, file := newBackings(t)
	r.last = 5000
	r.held = map[int32]bool{3: true, 7: true, 4000: true, 4990: true, 5000: true}
	before := newTestState(t)
	for id, backing := range map[uint64]int32{1: 3, 2: 7, 3: 4000, 4: 4000, 5: 4990, 6: 8} {
		before.add(heldSlot{id: id, ino: uint64(backing), kind: heldFile, openFlags: fuse.FOPEN_PASSTHROUGH, backing: backing}, nil)
	}
	for _, id := range []uint64{2, 3, 6} { // 7, one of two of 4000, and 8, which was unregistered
		before.remove(id, heldFile)
	}
	s := reopenState(t, before)
	defer func() { must(t, errors.Join(before.close(), s.close())) }()
	for _, slot := range s.all() {
		b.adopt(metadata.Ino(slot.ino), slot.backing)
	}
	b.acquire(3, file, false)
	b.acquire(4000, file, true)
	b.dropUnused() // 4990
	b.first, _ = r.register(file)
	must(t, r.unregister(b.first))
	b.dropLost(s.removed())
	if want := (map[int32]bool{3: true, 4000: true}); !maps.Equal(r.held, want) {
		t.Errorf("registered are %v, want %v", r.held, want)
	}
}

func TestBackingsInParallel(t *testing.T) {
	b, r, file := newBackings(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 500 {
				ino := metadata.Ino(i % 3)
				if b.acquire(ino, file, i%2 == 0) == 0 {
					t.Error("not registered")
				}
				b.release(ino, i%2 == 0)
			}
		})
	}
	group.Wait()
	if len(r.held) != 0 || b.writers.Load() != 0 {
		t.Errorf("%d registrations, %d writers left", len(r.held), b.writers.Load())
	}
}
