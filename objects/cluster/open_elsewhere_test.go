package cluster

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	kept "github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// elsewhereRig is a store with the list of what other nodes have open.
type elsewhereRig struct {
	*serverRig
	keeper *kept.Store
	dir    objects.Ino
	*Elsewhere
}

func newElsewhereRig(t *testing.T) *elsewhereRig {
	t.Helper()
	kit.Check(t)
	r := &elsewhereRig{serverRig: newServerRig(t), keeper: &kept.Store{}}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(context.Background()), r.keeper.Close()); err != nil {
			t.Error(err)
		}
	})
	roots, err := r.store.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.dir = roots[0].Root
	r.next(true) // there is none yet
	return r
}

// next continues as the process that follows does.
func (r *elsewhereRig) next(resume bool) {
	r.t.Helper()
	before := r.Elsewhere
	var err error
	if r.Elsewhere, err = KeepElsewhere(r.t.Context(), r.keeper, resume, r.store, zap.NewNop()); err != nil {
		r.t.Fatal(err)
	}
	if err = before.Close(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}

// file makes a file with bytes.
func (r *elsewhereRig) file(name string) objects.Ino {
	r.t.Helper()
	a, err := r.store.Create(r.t.Context(), r.dir, name, metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if err != nil {
		r.t.Fatal(err)
	}
	h := r.open(a.Ino)
	if _, err = h.file.WriteAt(r.t.Context(), kit.Bytes(1, 0, 5000), objects.Write{}); err != nil {
		r.t.Fatal(err)
	}
	r.end(h)
	return a.Ino
}

// open opens a file as a session of the node 1 does.
func (r *elsewhereRig) open(ino objects.Ino) *handle {
	r.t.Helper()
	return r.openBy(1, ino)
}

func (r *elsewhereRig) openBy(node wire.Rank, ino objects.Ino) *handle {
	r.t.Helper()
	f, err := r.store.OpenFile(r.t.Context(), ino)
	if err != nil {
		r.t.Fatal(err)
	}
	h := &handle{file: f}
	r.add(node, h)
	r.added(r.t.Context(), node, h)
	return h
}

// end closes a file as a session does.
func (r *elsewhereRig) end(h *handle) {
	r.t.Helper()
	r.remove(h)
	if err := h.file.Close(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}

// die closes a file as the death of the process does: it stays in the list.
func (r *elsewhereRig) die(all ...*handle) {
	for _, h := range all {
		h.file.Abandon(r.t.Context())
	}
}

// lives reports whether a file without a name still is there.
func (r *elsewhereRig) lives(ino objects.Ino) bool {
	f, err := r.store.OpenFile(r.t.Context(), ino)
	if err == nil {
		f.Abandon(r.t.Context())
	} else if !errors.Is(err, metadata.ErrNotExist) {
		r.t.Error(err)
	}
	return err == nil
}

// unlink removes a file's name, and checks whether it is still there.
func (r *elsewhereRig) unlink(name string, ino objects.Ino, lives bool) {
	r.t.Helper()
	if err := r.store.Unlink(r.t.Context(), r.dir, name); err != nil {
		r.t.Fatal(err)
	}
	r.want(ino, lives)
}

func (r *elsewhereRig) want(ino objects.Ino, lives bool) {
	r.t.Helper()
	if got := r.lives(ino); got != lives {
		r.t.Errorf("file %d lives: %v, want %v", ino, got, lives)
	}
}

// wantPlaces checks how many places of the list are taken, and that no file is awaited if there are none.
func (r *elsewhereRig) wantPlaces(n int) {
	r.t.Helper()
	r.Elsewhere.mu.Lock()
	defer r.Elsewhere.mu.Unlock()
	if got := mostElsewhere - len(r.free); got != n || n == 0 && len(r.awaited) > 0 {
		r.t.Errorf("%d places are taken, want %d, and %d files are awaited", got, n, len(r.awaited))
	}
}

// TestElsewhere removes files that others had open when the process died.
func TestElsewhere(t *testing.T) {
	r := newElsewhereRig(t)
	twice, closed, never := r.file("twice"), r.file("closed"), r.file("never")
	a, b, c, d := r.open(twice), r.open(twice), r.open(closed), r.open(never)
	r.end(c)
	r.die(a, b, d)
	r.wantPlaces(3)
	for range 2 { // those that nobody has opened again are awaited after another death, too
		r.next(true)
	}
	r.unlink("twice", twice, true)
	r.unlink("closed", closed, false)
	r.unlink("never", never, true)

	r.end(r.openBy(2, never)) // which is not the node that is awaited
	r.want(never, true)
	a = r.open(twice)
	r.end(a)
	r.want(twice, true) // the second program has not come yet
	b = r.open(twice)
	r.want(twice, true)
	r.die(b)
	r.next(true)
	r.want(twice, false) // it lives no longer than the store: this one has not died
	r.want(never, true)
	r.GiveUp(t.Context())
	r.want(never, false)
	r.wantPlaces(0)
}

// TestElsewhereAnew starts lists that are not continued.
func TestElsewhereAnew(t *testing.T) {
	r := newElsewhereRig(t)
	ino := r.file("f")
	r.die(r.open(ino))
	r.next(false) // another incarnation
	r.wantPlaces(0)
	r.die(r.open(ino))
	other, err := memfd.Create("other", 4096)
	if err == nil {
		err = r.keeper.Keep(elsewhereName, other)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.next(true)
	r.wantPlaces(0)
	r.unlink("f", ino, false)
}

// TestElsewhereFull opens more files than the list has places.
func TestElsewhereFull(t *testing.T) {
	r := newElsewhereRig(t)
	ino := r.file("f")
	var all []*handle
	for range mostElsewhere + 2 {
		all = append(all, r.open(ino))
	}
	for _, h := range all {
		r.end(h)
	}
	r.wantPlaces(0)
}
