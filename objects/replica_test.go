package objects_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// replicated sets key k by one user, with replicas of others. Each replica's memory is
// changed afterwards, so that a read shows which one it was made from.
func (r *rig) replicated(owner *user, others ...*user) objects.Ino {
	r.t.Helper()
	ino := owner.mustBind(owner.keyed("k", 0, 600, 1000, 400))
	for i, u := range others {
		if err := u.get(u.keyed("k", 2000, 600, 3000, 400), true); err != nil {
			r.t.Fatal(err)
		}
		if at := kit.FirstDiff(slicesOf(u.bytes(), 2000, 600, 3000, 400), slicesOf(owner.bytes(), 0, 600, 1000, 400)); at >= 0 {
			r.t.Errorf("byte %d of the replica is not the owner's", at)
		}
		u.fill(0, kit.Bytes(uint64(100+i), 0, 4096))
	}
	return ino
}

// ofReplica returns what the memory of the i-th of the others holds.
func ofReplica(i int) []byte {
	return slicesOf(kit.Bytes(uint64(100+i), 0, 4096), 2000, 600, 3000, 400)
}

func ofOwner(seed uint64) []byte { return slicesOf(kit.Bytes(seed, 0, 4096), 0, 600, 1000, 400) }

// Readers get the owner's bytes while its memory exists, and then those of one replica
// after the other, in whatever way each owner ends.
func TestReplicaTakesOver(t *testing.T) {
	for name, goes := range map[string]func(*user, string){
		"the owner ends":  func(u *user, _ string) { u.close() },
		"the owner drops": func(u *user, key string) { u.dropLocal(key) },
		"his memory is closed": func(u *user, _ string) {
			if err := u.region.Close(u.rig.ctx()); err != nil {
				u.rig.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := twoDevices(t)
			owner, first, second := r.user(0, 1, 4096), r.user(0, 2, 4096), r.user(0, 3, 4096)
			ino := r.replicated(owner, first, second)
			f := r.open(ino) // who has it open goes on, too
			r.wantBytes("k", ofOwner(1))
			for i, now := range []*user{owner, first} {
				goes(now, "k")
				r.wantState(ino, objects.StateBound)
				r.wantBytes("k", ofReplica(i))
				if at := kit.FirstDiff(r.read(f, 0, 1000), ofReplica(i)); at >= 0 {
					t.Errorf("byte %d of the open file is another's", at)
				}
			}
			r.close(f)
			goes(second, "k")
			if name == "the owner drops" {
				r.wantGone("k")
			} else {
				r.wantState(ino, objects.StateLost)
			}
			for i, u := range []*user{first, second} {
				if at := kit.FirstDiff(u.bytes(), kit.Bytes(uint64(100+i), 0, 4096)); at >= 0 {
					t.Errorf("byte %d of a replica's memory has changed", at)
				}
			}
		})
	}
}

// With a replica on another device the object moves there, with its number and
// its key.
func TestReplicaOfAnotherDevice(t *testing.T) {
	r := twoDevices(t)
	owner, far, near := r.user(0, 1, 4096), r.user(1, 2, 4096), r.user(0, 3, 4096)
	ino := r.replicated(owner, far, near)
	owner.dropLocal("k")
	r.wantPath("k", "sim0/.keys/k")
	r.wantBytes("k", ofReplica(1))
	near.close()
	r.wantPath("k", "sim1/.keys/k")
	r.wantBytes("k", ofReplica(0))
	if a := r.attr(ino); a.Device != "sim1" || a.State != objects.StateBound || a.Size != 1000 || a.Resident != 1000 {
		t.Errorf("%s, %s, %d bytes, %d resident", a.Device, a.State, a.Size, a.Resident)
	}
	if bound, err := r.meta.Bindings(r.ctx()); err != nil || !slices.Equal(bound, []objects.Ino{ino}) {
		t.Errorf("bound are %v, %v", bound, err)
	}
	far.close()
	r.wantState(ino, objects.StateLost)
}

// In the next run, an object that a replica has taken over is lost, like any other that
// was set.
func TestReplicaInTheNextRun(t *testing.T) {
	r := twoDevices(t)
	owner, far := r.user(0, 1, 4096), r.user(1, 2, 4096)
	ino := r.replicated(owner, far)
	owner.close()
	r.wantBytes("k", ofReplica(0))
	dead := r.store
	r.reopen()
	r.wantState(ino, objects.StateLost)
	r.wantPath("k", "sim1/.keys/k")
	if err := dead.Close(context.Background(), objects.CloseOptions{}); err != nil {
		t.Error(err)
	}
}

// A file that a client has renamed keeps its name: the object does not follow a replica
// to another device, and is lost without one on its own.
func TestReplicaOfANamedFile(t *testing.T) {
	r := twoDevices(t)
	owner, far := r.user(0, 1, 4096), r.user(1, 2, 4096)
	ino := r.replicated(owner, far)
	dir := r.attr(ino).Parent
	if err := r.store.Rename(r.ctx(), metadata.Rename{From: dir, Name: "k", To: r.root("sim0"), NewName: "mine"}); err != nil {
		t.Fatal(err)
	}
	owner.close()
	r.wantPath("k", "sim0/mine")
	r.wantState(ino, objects.StateLost)
}

// A replica that ends does not affect the owner, and is not read again.
func TestReplicaGoes(t *testing.T) {
	r := twoDevices(t)
	owner, first, second := r.user(0, 1, 4096), r.user(0, 2, 4096), r.user(0, 3, 4096)
	ino := r.replicated(owner, first, second)
	first.dropLocal("k")
	first.dropLocal("k")
	second.close()
	r.wantBytes("k", ofOwner(1))
	owner.close()
	r.wantState(ino, objects.StateLost)
	wantErr(t, "read", first.get(first.keyed("k", 0, 600, 1000, 400), false), objects.ErrLost)
	first.dropLocal("k") // it has nothing of that
	r.wantState(ino, objects.StateLost)
}

// A write through the store makes the replicas stale.
func TestReplicaIsStaleAfterAWrite(t *testing.T) {
	r := twoDevices(t)
	owner, other := r.user(0, 1, 4096), r.user(0, 2, 4096)
	ino := r.replicated(owner, other)
	f := r.open(ino)
	r.write(f, 5, []byte("new"))
	r.close(f)
	owner.close()
	r.wantState(ino, objects.StateLost)
}

// A read between the owner's end and the takeover, which waits for a change of the
// object under way, gets the replica's bytes.
func TestReplicaBeforeItTakesOver(t *testing.T) {
	r := twoDevices(t)
	owner, other := r.user(0, 1, 4096), r.user(1, 2, 4096)
	ino := r.replicated(owner, other)
	f := r.open(ino)
	release, err := f.HoldLane(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	hurried, cancel := context.WithCancel(r.ctx())
	cancel()
	wantErr(t, "the end", owner.Close(hurried), context.Canceled)
	r.wantState(ino, objects.StateBound)
	r.wantBytes("k", ofReplica(0))
	r.wantPath("k", "sim0/.keys/k")
	release()
	r.close(f)
	owner.close()
	r.wantPath("k", "sim1/.keys/k")
	r.wantBytes("k", ofReplica(0))
}

// An object that is being removed gets no replica.
func TestReplicaOfWhatGoes(t *testing.T) {
	r := twoDevices(t)
	owner, other := r.user(0, 1, 4096), r.user(1, 2, 4096)
	ino := r.replicated(owner)
	f := r.open(ino)
	f.Leaves(true)
	wantErr(t, "a replica", other.get(other.keyed("k", 0, 600, 1000, 400), true), metadata.ErrNotExist)
	f.Leaves(false)
	if err := other.get(other.keyed("k", 0, 600, 1000, 400), true); err != nil {
		t.Error(err)
	}
	r.close(f)
}

// Ended keys and replicas leave no references in their regions.
func TestNothingIsLeftOfKeys(t *testing.T) {
	r := twoDevices(t)
	owner, first, second := r.user(0, 1, 4096), r.user(0, 2, 4096), r.user(1, 3, 4096)
	left := func() int { return owner.region.Users() + first.region.Users() + second.region.Users() }
	for name, goes := range map[string]func(){
		"removed":         func() { wantErr(t, "drop", owner.Drop(r.ctx(), []string{"k"})[0], nil) },
		"dropped by each": func() { owner.dropLocal("k"); first.dropLocal("k"); second.dropLocal("k") },
		"written first": func() {
			f := r.open(r.keyIno("k"))
			r.write(f, 0, []byte("x"))
			r.close(f)
			owner.dropLocal("k")
		},
	} {
		r.replicated(owner, first, second)
		if n := left(); n != 3 {
			t.Errorf("%d contents are made of the memory, want 3", n)
		}
		goes()
		r.wantGone("k")
		if n := left(); n != 0 || r.store.Loaded() != 0 {
			t.Errorf("%s: %d contents and %d objects are left", name, n, r.store.Loaded())
		}
	}
	// A file in .keys that has lost its key prevents the key from being set again.
	owner.mustBind(owner.keyed("k", 0, 100))
	if err := r.store.RemoveXattr(r.ctx(), r.keyIno("k"), "user.hmc.key"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "set it again", first.bind(first.keyed("k", 0, 100)), metadata.ErrExist)
	if n := left(); n != 1 || r.store.Loaded() != 1 {
		t.Errorf("%d contents and %d objects are left of a key that was not set", n, r.store.Loaded())
	}
	for i, u := range []*user{owner, first, second} {
		if n := r.store.Holders(); n != 3-i {
			t.Errorf("%d holders, want %d", n, 3-i)
		}
		u.close()
	}
	if n := r.store.Holders(); n != 0 {
		t.Errorf("%d holders that have ended", n)
	}
}

// A write during a copy leaves bytes that are not the object's: they become no replica.
func TestReplicaOfWhatChanges(t *testing.T) {
	r := newStopping(t)
	owner, other := r.user(0, 1, 4096), r.user(1, 2, 4096)
	ino := owner.mustBind(owner.keyed("k", 0, 1000))
	goOn, result := make(chan struct{}), make(chan error, 1)
	r.armed <- goOn
	go func() {
		result <- other.Scatter(context.Background(), objects.Scatter{Keyed: other.keyed("k", 0, 1000), Replica: true})
	}()
	<-r.inside
	f := r.open(ino)
	r.write(f, 0, kit.Bytes(3, 0, 1000))
	r.close(f)
	close(goOn)
	wantErr(t, "the copy", <-result, objects.ErrInconsistent)
	r.wantBytes("k", kit.Bytes(3, 0, 1000))
	owner.close()
	r.wantState(ino, objects.StateLost)
}

// A holder is at most one replica of a key; if it is the owner too, it is dropped as
// both.
func TestReplicaOnce(t *testing.T) {
	r := twoDevices(t)
	owner, other := r.user(0, 1, 4096), r.user(0, 2, 4096)
	r.replicated(owner, other)
	for _, at := range []uint64{0, 1500} {
		if err := other.get(other.keyed("k", at, 600, at+700, 400), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := owner.get(owner.keyed("k", 0, 600, 1000, 400), true); err != nil {
		t.Fatal(err)
	}
	other.fill(0, kit.Bytes(9, 0, 4096))
	owner.dropLocal("k")
	r.wantBytes("k", slicesOf(kit.Bytes(9, 0, 4096), 1500, 600, 2200, 400))
	other.dropLocal("k")
	r.wantGone("k")
}

// Blobs that can't be a replica are refused, or need not be one.
func TestReplicaRefuses(t *testing.T) {
	r := twoDevices(t)
	owner := r.user(0, 1, 4096)
	owner.mustBind(owner.keyed("k", 0, 600, 1000, 400))
	other := r.user(0, 2, 4096)
	wantErr(t, "a part", other.get(other.keyed("k", 0, 100, 200, 100), true), objects.ErrInvalid)
	f := r.create("sim0", "file")
	defer r.close(f)
	r.write(f, 0, kit.Bytes(3, 0, 500))
	if err := r.store.SetXattr(r.ctx(), f.Ino(), "user.hmc.key", []byte("file"), 0); err != nil {
		t.Fatal(err)
	}
	if err := other.get(other.keyed("file", 0, 500), true); err != nil {
		t.Errorf("of an object that has bytes of its own: %v", err)
	}
	other.dropLocal("file")
	r.wantPath("file", "sim0/file")
	stranger := r.store.NewHolder(objects.Caller{UID: 4711})
	defer func() {
		if err := stranger.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	reg, err := stranger.Adopt(r.ctx(), "sim0", other.mem)
	if err != nil {
		t.Fatal(err)
	}
	blobs := []objects.Blob{{Region: reg, Len: 100}}
	wantErr(t, "to a stranger", stranger.Bind(r.ctx(), []objects.Keyed{{Key: "s", Blobs: blobs}})[0], objects.ErrForbidden)
	r.wantGone("s")
}

// Holders and regions end while keys are set, read, dropped and replicated: each read
// gets the right bytes, and in the end nothing is left.
func TestHoldersAtTheSameTime(t *testing.T) {
	r := twoDevices(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	lives := make([][]*holderLife, 6)
	for i := range lives {
		for range 8 {
			// All set the same bytes, so that a copy of any is right.
			u := r.user(rng.IntN(2), 1, lifePart*(1+lifeWorkers*lifeSteps))
			lives[i] = append(lives[i], &holderLife{user: u, seed: rng.Uint64(), early: rng.IntN(2) == 0, cut: rng.IntN(2) == 0})
		}
	}
	var work sync.WaitGroup
	for _, next := range lives {
		work.Go(func() {
			for _, l := range next {
				if err := l.run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	for i := range lifeKeys {
		if ino, err := r.store.KeyIno(r.ctx(), fmt.Sprint("k", i)); err == nil {
			r.wantState(ino, objects.StateLost)
		}
	}
	if left, err := r.meta.Bindings(r.ctx()); err != nil || len(left) != 0 {
		t.Errorf("bindings of nothing: %v, %v", left, err)
	}
}

const (
	lifeKeys    = 4
	lifeWorkers = 2
	lifeSteps   = 20
	lifePart    = 512
)

// holderLife is the life of one user in TestHoldersAtTheSameTime. The first part
// of its memory is what it sets; into each other it reads once.
type holderLife struct {
	*user
	seed uint64
	// early makes it end before it is done, and cut ends its memory.
	early, cut bool
}

func (l *holderLife) run() error {
	var work sync.WaitGroup
	errs := make([]error, lifeWorkers+2)
	for i := range lifeWorkers {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(l.seed, uint64(i)))
			for step := range lifeSteps {
				part := lifePart * uint64(1+i*lifeSteps+step)
				if err := l.step(rng, part); err != nil && !isOrdinary(err) {
					errs[i] = errors.Join(errs[i], err)
				}
			}
		})
	}
	if l.cut {
		work.Go(func() { errs[lifeWorkers] = l.region.Close(context.Background()) })
	}
	if !l.early {
		work.Wait()
	}
	errs[lifeWorkers+1] = l.Close(context.Background())
	work.Wait()
	return errors.Join(errs...)
}

func (l *holderLife) step(rng *rand.Rand, part uint64) error {
	ctx, key := context.Background(), fmt.Sprint("k", rng.IntN(lifeKeys))
	switch rng.IntN(8) {
	case 0:
		return l.DropLocal(ctx, []string{key})[0]
	case 1:
		return l.Drop(ctx, []string{key})[0]
	case 2, 3:
		return l.Bind(ctx, []objects.Keyed{l.keyed(key, 0, lifePart)})[0]
	}
	to := l.keyed(key, part, lifePart)
	err := l.Scatter(ctx, objects.Scatter{Keyed: to, Replica: rng.IntN(2) == 0})
	if err != nil {
		return err
	}
	got := make([]byte, lifePart)
	span, err := l.mem.Span(devices.Range{Off: devices.Offset(part), Len: lifePart})
	if err == nil {
		err = l.mem.Device().CopyOut(ctx, got, span)
	}
	if at := kit.DiffAt(got, 1, 0); err == nil && at >= 0 {
		err = fmt.Errorf("byte %d of key %s is nobody's", at, key)
	}
	return err
}

// isOrdinary reports whether concurrent, independent users may get an error.
func isOrdinary(err error) bool {
	for _, want := range []error{
		metadata.ErrExist, metadata.ErrNotExist, objects.ErrLost, objects.ErrClosed, objects.ErrInconsistent,
	} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}
