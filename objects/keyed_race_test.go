package objects_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	metafaulty "github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// TestDropUnderReader drops, or replaces, a key during a read: the reader gets all
// bytes, which are freed afterwards.
func TestDropUnderReader(t *testing.T) {
	kit.Check(t)
	var hold atomic.Bool
	inside, goOn := make(chan struct{}), make(chan struct{})
	hook := func(op devfaulty.Op) error {
		if op.Kind == devfaulty.CopyIn && hold.CompareAndSwap(true, false) {
			inside <- struct{}{}
			<-goOn
		}
		return nil
	}
	r := newKeyed(t, keyedOptions{hook: hook})
	const size = 200 * kib
	m, to := r.memory(1, size, 1), r.memory(2, size, 9)
	want := m.bytes()
	for what, take := range map[string]func() error{
		"drop":    func() error { return r.user.Drop(r.ctx(), []string{"k"})[0] },
		"replace": func() error { return r.user.Gather(r.ctx(), keyedSet("k", m.all()), replacing())[0].Err },
	} {
		m.fill(1)
		r.gather("k", replacing(), m.all())
		ino := r.keyIno("k")
		hold.Store(true)
		done := make(chan error, 1)
		go func() {
			done <- r.user.Scatter(r.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: "k", Blobs: to.all()}})
		}()
		<-inside
		m.fill(2)
		if err := take(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		goOn <- struct{}{}
		if err := <-done; err != nil {
			t.Errorf("%s: read: %v", what, err)
		}
		if d := kit.FirstDiff(to.bytes(), want); d >= 0 {
			t.Errorf("%s: byte %d differs", what, d)
		}
		r.gone(ino)
		r.noStrays(r.ctx())
	}
}

func keyedSet(key string, blobs []objects.Blob) []objects.Keyed {
	return []objects.Keyed{{Key: key, Blobs: blobs}}
}

func replacing() objects.GatherOptions {
	return objects.GatherOptions{Existing: objects.ExistingReplace}
}

// TestGatherSame has two users set the same new keys concurrently: each key is set by
// one, and skipped by the other (case C16).
func TestGatherSame(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	memories := []*memory{r.memory(1, 4*kib, 1), r.memory(2, 4*kib, 2)}
	for round, key := range manyKeys("same", 300) {
		var got [2]objects.Gathered
		var both sync.WaitGroup
		for i, m := range memories {
			both.Go(func() {
				got[i] = r.user.Gather(r.ctx(), keyedSet(key, m.all()), objects.GatherOptions{})[0]
			})
		}
		both.Wait()
		if got[0].Err != nil || got[1].Err != nil || got[0].Skipped == got[1].Skipped {
			t.Fatalf("round %d: %+v", round, got)
		}
		winner := memories[0]
		if got[0].Skipped {
			winner = memories[1]
		}
		r.holds(key, winner.bytes())
	}
}

// TestGatherLeftover is content whose record was not written and which could not
// be removed either: the next mount removes it.
func TestGatherLeftover(t *testing.T) {
	kit.Check(t)
	var failing atomic.Bool
	r := newKeyed(t, keyedOptions{
		hook: func(op devfaulty.Op) error {
			if failing.Load() && op.Kind == devfaulty.RemoveFile {
				return errInjected
			}
			return nil
		},
		kv: metafaulty.Wrap(memkv.New(), func(op metafaulty.Op) error {
			if failing.Load() && op == metafaulty.Commit {
				return errInjected
			}
			return nil
		}),
	})
	m := r.memory(1, 64*kib, 1)
	r.gather("before", objects.GatherOptions{}, m.all())
	failing.Store(true)
	if one := r.user.Gather(r.ctx(), keyedSet("k", m.all()), objects.GatherOptions{})[0]; !errors.Is(one.Err, errInjected) {
		t.Errorf("%+v", one)
	}
	failing.Store(false)
	files := func() (n int) {
		if err := r.tier.Each(func(uint64) error { n++; return nil }); err != nil {
			t.Error(err)
		}
		return n
	}
	if n := files(); n != 2 {
		t.Errorf("%d host files", n)
	}
	want := m.bytes()
	r.again(func() {})
	kit.Eventually(t, within, func() bool { return files() == 1 })
	r.absent("k")
	r.holds("before", want)
}

// TestKeyedTogether has several users do everything with the same few keys
// concurrently. Each read returns the complete bytes of some write.
func TestKeyedTogether(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const users, size = 4, 20000
	var all sync.WaitGroup
	for n := range users {
		u := &together{
			keyedRig: r, rng: rand.New(rand.NewPCG(seed, uint64(n))), seed: uint64(n + 1),
			m: r.memory(1, size, uint64(n+1)), to: r.memory(2, size, 99), size: size, users: users,
		}
		all.Go(func() {
			for range 300 {
				if err := u.step(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	r.noStrays(r.ctx())
}

// together is one of these users.
type together struct {
	*keyedRig
	rng         *rand.Rand
	m, to       *memory
	seed        uint64
	size, users int
}

func (u *together) step() error {
	key := fmt.Sprint("k", u.rng.IntN(3))
	// The key may be there or not, lost or over, at any moment.
	allowed := func(err error, what ...error) error {
		for _, one := range append(what, metadata.ErrNotExist) {
			if errors.Is(err, one) {
				return nil
			}
		}
		return err
	}
	ctx := u.ctx()
	half := uint64(u.size / 2)
	switch u.rng.IntN(9) {
	case 0, 1, 2:
		o := objects.GatherOptions{Existing: objects.ExistingRule(u.rng.IntN(3))}
		if u.rng.IntN(3) == 0 {
			o.Expires = u.after(time.Duration(u.rng.IntN(5)) * time.Millisecond)
		}
		return allowed(u.user.Gather(ctx, keyedSet(key, u.m.blobs([2]uint64{0, half}, [2]uint64{half, half})), o)[0].Err, metadata.ErrExist)
	case 3:
		return u.user.Drop(ctx, []string{key})[0]
	case 4:
		return allowed(u.user.Expire(ctx, key, u.after(time.Duration(u.rng.IntN(3))*time.Millisecond)))
	case 5:
		return allowed(u.user.Bind(ctx, keyedSet(key, u.m.all()))[0], metadata.ErrExist, objects.ErrInconsistent)
	case 6:
		_, err := u.user.KeyInfo(ctx, key)
		return allowed(err)
	}
	return allowed(u.read(key, half))
}

// read copies a key that was gathered, or bound, as two blobs or as one.
func (u *together) read(key string, half uint64) error {
	blobs := u.to.blobs([2]uint64{0, half}, [2]uint64{half, half})
	err := u.user.Scatter(u.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: key, Blobs: blobs}})
	if shape := (*objects.ShapeError)(nil); errors.As(err, &shape) && len(shape.Want) == 1 {
		err = u.user.Scatter(u.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: key, Blobs: u.to.all()}})
	}
	if shape := (*objects.ShapeError)(nil); errors.As(err, &shape) && len(shape.Want) == 2 {
		return nil // it was set anew in between
	}
	if err != nil {
		return err
	}
	got := u.to.bytes()
	for n := range u.users {
		if kit.DiffAt(got, uint64(n+1), 0) < 0 {
			return nil
		}
	}
	return fmt.Errorf("key %q: bytes that nobody has set, in one piece", key)
}

// TestLookWhileReplaced looks up a key of the host tier, and the name of its file,
// while the object is replaced repeatedly: it always exists, and is never lost.
func TestLookWhileReplaced(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 4*kib, 1)
	set := func() error { return r.user.Gather(r.ctx(), keyedSet("k", m.all()), replacing())[0].Err }
	if err := set(); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var looks sync.WaitGroup
	for what, look := range map[string]func() (objects.Attr, error){
		"the key": func() (objects.Attr, error) {
			info, err := r.user.KeyInfo(r.ctx(), "k")
			return info.Attr, err
		},
		"what has the key": func() (objects.Attr, error) {
			ino, err := r.meta.KeyIno(r.ctx(), "k")
			if err != nil {
				return objects.Attr{}, err
			}
			a, err := r.store.Attr(r.ctx(), ino)
			if errors.Is(err, metadata.ErrNotExist) {
				return objects.Attr{State: objects.StateLive}, nil
			}
			return a, err
		},
	} {
		looks.Go(func() {
			for !over.Load() {
				if a, err := look(); err != nil || a.State != objects.StateLive {
					t.Errorf("%s: %s, %v", what, a.State, err)
					return
				}
			}
		})
	}
	for range kit.Rounds(300, 1000, 10_000) {
		if err := set(); err != nil {
			t.Error(err)
		}
	}
	over.Store(true)
	looks.Wait()
}
