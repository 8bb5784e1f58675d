package objects_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// tooLong bounds the waits of tests, which fail after it.
const tooLong = 5 * time.Second

// leaveKeys has a session set keys, of 5000 bytes each.
func (k *keptRig) leaveKeys(keys ...string) {
	k.t.Helper()
	owner := k.lasting("owner", kit.Memfd(k.t, 1, lastingSize), 1)
	for i, key := range keys {
		noError(k.t, errors.Join(owner.Bind(k.ctx(), []objects.Keyed{owner.part(key, uint64(i)*5000, 5000)})...))
	}
}

// killLeaving kills a store in which a session has keys, and opens these in the next one.
func (k *keptRig) killLeaving(keys ...string) (files []*objects.File) {
	k.t.Helper()
	k.leaveKeys(keys...)
	k.killAnd(func() {})
	for _, key := range keys {
		files = append(files, k.rig.open(k.keyIno(key)))
	}
	return files
}

// TestAbsentAfterSlowStart has a start that takes longer, after it has found a key whose owner may come back, than it
// waits for that: the wait ends nevertheless.
func TestAbsentAfterSlowStart(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	steps := &failing{}
	k.kv = failingKV{k.kv, steps}
	k.absent = time.Hour
	k.leaveKeys("key")
	k.killAnd(func() { steps.taken.Store(0) })
	last := steps.taken.Load() // of such a start, after it has found the key
	k.killAnd(func() {
		k.absent = 50 * time.Millisecond
		steps.taken.Store(0)
		steps.at, steps.fails = last, func() error { <-time.After(2 * k.absent); return nil }
	})
	reader := k.lasting("reader", kit.Memfd(t, 2, lastingSize), 1)
	soon, cancel := context.WithTimeout(k.ctx(), tooLong)
	defer cancel()
	if err := reader.Scatter(soon, objects.Scatter{Keyed: reader.part("key", 0, 5000)}); !errors.Is(err, objects.ErrLost) {
		t.Errorf("a key whose owner did not come back: %v", err)
	}
}

// TestAbsentBeforeSessions has a program that needs longer for its start than owners are awaited: that time begins when
// sessions can come back.
func TestAbsentBeforeSessions(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	k.absent, k.late = 20*time.Millisecond, true
	f := k.killLeaving("key")[0]
	<-time.After(3 * k.absent)
	owner := k.lasting("owner", kit.Memfd(t, 1, lastingSize), 1)
	owner.Continue(k.ctx())
	k.store.AwaitOwners()
	if at := kit.DiffAt(k.read(f, 0, 5000), 1, 0); at >= 0 {
		t.Errorf("the key has other bytes from %d on", at)
	}
	k.close(f)
}

// TestAbsentInterrupted has calls that wait for the memory of a key whose owner may come back: they end with their
// contexts, and leave the key as it was.
func TestAbsentInterrupted(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	k.absent = time.Hour
	f := k.killLeaving("key")[0]
	other := k.create("sim0", "other")
	region, err := k.store.NewHolder(objects.Caller{}).RegisterFile(k.ctx(), f.Ino())
	noError(t, err)
	for what, call := range map[string]func(ctx context.Context) error{
		"read": func(ctx context.Context) error { _, err := f.ReadAt(ctx, make([]byte, 10), 100); return err },
		"seek": func(ctx context.Context) error { _, err := f.Seek(ctx, 100, objects.SeekHole); return err },
		"view": func(ctx context.Context) error { _, err := f.Views(ctx, 100, 10); return err },
		"write": func(ctx context.Context) error {
			_, err := f.WriteAt(ctx, []byte("x"), objects.Write{Off: 7})
			return err
		},
		"registered": func(ctx context.Context) error {
			return objects.Blob{Region: region, Len: 5000}.Get(ctx, 0, make([]byte, 10))
		},
		"copy from it": func(ctx context.Context) error {
			_, err := k.store.CopyRange(ctx, objects.CopyRange{Dst: other, Src: f, N: 5000})
			return err
		},
	} {
		soon, cancel := context.WithTimeout(k.ctx(), 10*time.Millisecond)
		if err := call(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	owner := k.lasting("owner", kit.Memfd(t, 1, lastingSize), 1)
	owner.Continue(k.ctx())
	if at := kit.DiffAt(k.read(f, 0, 5000), 1, 0); at >= 0 {
		t.Errorf("the key has other bytes from %d on", at)
	}
	k.close(f)
	k.close(other)
}

// TestAbsentClosed closes a store whose readers wait for the owner of a key.
func TestAbsentClosed(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	k.absent = time.Hour
	f := k.killLeaving("key")[0]
	ended := make(chan error, 2)
	for _, call := range []func() error{
		func() error { _, err := f.ReadAt(context.Background(), make([]byte, 10), 100); return err },
		func() error {
			_, err := f.WriteAt(context.Background(), []byte("x"), objects.Write{Off: 7})
			return err
		},
	} {
		go func() { ended <- call() }()
	}
	noError(t, k.store.Close(k.ctx(), objects.CloseOptions{Keep: true, Leave: true}))
	for range 2 {
		select {
		case err := <-ended:
			if !errors.Is(err, objects.ErrLost) {
				t.Errorf("a call that waits while the store is closed: %v", err)
			}
		case <-time.After(tooLong):
			t.Fatal("a reader waits for ever")
		}
	}
	k.close(f)
	k.reopen() // what a failed start leaves, the next one finds
	owner := k.lasting("owner", kit.Memfd(t, 1, lastingSize), 1)
	owner.Continue(k.ctx())
	f = k.rig.open(k.keyIno("key"))
	if at := kit.DiffAt(k.read(f, 0, 5000), 1, 0); at >= 0 {
		t.Errorf("the key has other bytes from %d on", at)
	}
	k.close(f)
}

// TestAbsentPair has copies between keys whose owner does not come back, in both directions: each has the lane of one,
// and waits for the other.
func TestAbsentPair(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	k.absent = 300 * time.Millisecond
	files := k.killLeaving("key", "other")
	a, b := files[0], files[1]
	ended := make(chan error, 2)
	for _, r := range []objects.CopyRange{{Dst: a, Src: b, N: 5000}, {Dst: b, Src: a, N: 5000}} {
		go func() {
			_, err := k.store.CopyRange(context.Background(), r)
			ended <- err
		}()
	}
	for range 2 {
		select {
		case err := <-ended:
			if !errors.Is(err, objects.ErrLost) {
				t.Errorf("a copy of a key whose owner did not come back: %v", err)
			}
		case <-time.After(tooLong):
			t.Fatal("a copy waits for ever")
		}
	}
	k.close(a)
	k.close(b)
}
