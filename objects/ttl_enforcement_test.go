package objects_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// within bounds the time for which a test waits for a background event.
const within = 60 * time.Second

// clock is a time that a test sets.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// gone waits until none of the inode numbers exists.
func (r *keyedRig) gone(inos ...objects.Ino) {
	r.t.Helper()
	kit.Eventually(r.t, within, func() error {
		for _, ino := range inos {
			if _, err := r.meta.Get(r.ctx(), ino); !errors.Is(err, metadata.ErrNotExist) {
				return fmt.Errorf("inode %d: %w", ino, err)
			}
		}
		return nil
	})
}

func (r *keyedRig) keyIno(key string) objects.Ino {
	r.t.Helper()
	ino, err := r.store.KeyIno(r.ctx(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return ino
}

// TestExpireBySweeper: objects with a time to live are removed in the background,
// others are not.
func TestExpireBySweeper(t *testing.T) {
	kit.Check(t)
	c := &clock{}
	r := newKeyed(t, keyedOptions{now: c.now})
	m := r.memory(1, 4*kib, 1)
	events := r.store.Listen()
	defer events.Close()
	r.gather("stays", objects.GatherOptions{Expires: r.after(100 * time.Hour)}, m.all())
	r.gather("third", objects.GatherOptions{Expires: r.after(2 * time.Hour)}, m.all())
	r.gather("first", objects.GatherOptions{}, m.all())
	r.gather("second", objects.GatherOptions{Expires: r.after(time.Hour)}, m.all())
	inos := []objects.Ino{r.keyIno("first"), r.keyIno("second"), r.keyIno("third")}
	c.advance(3 * time.Hour)
	// Earlier than the time for which the sweeper sleeps, so that it checks the clock, a
	// change of which is not signaled.
	if err := r.user.Expire(r.ctx(), "first", r.after(-150*time.Minute)); err != nil {
		t.Fatal(err)
	}
	r.gone(inos...)
	r.holds("stays", m.bytes())
	var ended []string
	ctx, cancel := context.WithTimeout(r.ctx(), within)
	defer cancel()
	for len(ended) < len(inos) {
		ev, err := events.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == objects.EventExpired {
			ended = append(ended, ev.Key)
		}
	}
	slices.Sort(ended)
	if !slices.Equal(ended, []string{"first", "second", "third"}) {
		t.Errorf("ended: %v", ended)
	}
}

// TestKeysOfAnEndedSessionGo: keys that are lost with the holder whose memory they
// named stay for a minute, also if the store is reopened meanwhile, and then leave
// nothing.
func TestKeysOfAnEndedSessionGo(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		t.Run(fmt.Sprintf("reopened %v", reopened), func(t *testing.T) {
			kit.Check(t)
			c := &clock{}
			r := newKeyed(t, keyedOptions{now: c.now})
			m := r.memory(1, 4*kib, 1)
			if errs := r.user.Bind(r.ctx(), []objects.Keyed{{Key: "a", Blobs: m.all()}, {Key: "b", Blobs: m.all()}}); errors.Join(errs...) != nil {
				t.Fatal(errs)
			}
			inos := []objects.Ino{r.keyIno("a"), r.keyIno("b")}
			if reopened {
				r.again(func() {})
			} else {
				if err := r.user.Close(r.ctx()); err != nil {
					t.Fatal(err)
				}
				r.user = r.store.NewHolder(me())
			}
			for _, ino := range inos {
				if a, err := r.store.Attr(r.ctx(), ino); err != nil || a.State != objects.StateLost {
					t.Errorf("at first: %v, %v", a.State, err)
				}
			}
			c.advance(2 * time.Minute)
			r.gather("now", objects.GatherOptions{Expires: r.after(-90 * time.Second)}, r.memory(1, 4*kib, 2).all()) // it looks at the clock then
			r.gone(inos...)
			r.absent("a")
			r.absent("b")
		})
	}
}

// TestExpireWhileUnmounted: a time to live continues while no store is open; one ends
// meanwhile, and one does not.
func TestExpireWhileUnmounted(t *testing.T) {
	kit.Check(t)
	c := &clock{}
	r := newKeyed(t, keyedOptions{now: c.now})
	m := r.memory(1, 4*kib, 1)
	r.gather("short", objects.GatherOptions{Expires: r.after(time.Hour)}, m.all())
	r.gather("long", objects.GatherOptions{Expires: r.after(3 * time.Hour)}, m.all())
	r.gather("ever", objects.GatherOptions{}, m.all())
	want := m.bytes()
	long, short := r.keyIno("long"), r.keyIno("short")
	r.again(func() { c.advance(2 * time.Hour) })
	if _, err := r.meta.Get(r.ctx(), short); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("there when the store is open: %v", err)
	}
	r.absent("short")
	r.holds("long", want)
	r.holds("ever", want)
	left, err := r.store.GetXattr(r.ctx(), long, "user.hmc.ttl")
	if n, bad := strconv.Atoi(string(left)); err != nil || bad != nil || n > 3600 || n < 1 {
		t.Errorf("%q seconds left, %v", left, err)
	}
}

// TestExpiredIsFree: a key whose time is over, but which the sweeper has not removed
// yet, does not exist, and any user may set it.
func TestExpiredIsFree(t *testing.T) {
	kit.Check(t)
	c := &clock{}
	r := newKeyed(t, keyedOptions{now: c.now})
	m := r.memory(1, 4*kib, 1)
	r.gather("k", objects.GatherOptions{Expires: r.after(time.Hour)}, m.all())
	c.advance(2 * time.Hour) // nobody wakes the sweeper
	r.absent("k")
	err := r.user.Scatter(r.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: "k", Blobs: m.all()}})
	if !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("read: %v", err)
	}
	if err := r.user.Expire(r.ctx(), "k", r.after(time.Hour)); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("prolonged: %v", err)
	}
	m.fill(2)
	if got := r.gather("k", objects.GatherOptions{Existing: objects.ExistingFail}, m.all()); got.Skipped {
		t.Error("skipped")
	}
	r.holds("k", m.bytes())
	r.noStrays(r.ctx())
}

// TestExpireOpen: an open file whose time is over loses its names, and its bytes with
// the handle.
func TestExpireOpen(t *testing.T) {
	kit.Check(t)
	for _, device := range []string{"host", "sim0"} {
		r := newKeyed(t, keyedOptions{})
		f := r.create(device, "file")
		want := kit.Bytes(3, 0, 70000)
		r.write(f, 0, want)
		if _, err := r.store.Link(r.ctx(), f.Ino(), r.root(device), "other"); err != nil {
			t.Fatal(err)
		}
		if err := r.store.SetTTL(r.ctx(), me(), f.Ino(), "1", 0); err != nil {
			t.Fatal(err)
		}
		r.gone(f.Ino())
		for _, name := range []string{"file", "other"} {
			if _, err := r.store.Lookup(r.ctx(), r.root(device), name); !errors.Is(err, metadata.ErrNotExist) {
				t.Errorf("%s/%s: %v", device, name, err)
			}
		}
		if d := kit.FirstDiff(r.read(f, 0, len(want)), want); d >= 0 {
			t.Errorf("%s: byte %d differs", device, d)
		}
		r.close(f)
	}
}

// stubborn is a key-value store that fails to remove the inodes with numbers from first
// to last.
type stubborn struct {
	metadata.KV
	first, last atomic.Uint64
}

func (s *stubborn) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	return s.KV.Update(ctx, func(t metadata.KVTxn) error { return fn(stubbornTxn{KVTxn: t, of: s}) })
}

type stubbornTxn struct {
	metadata.KVTxn
	of *stubborn
}

func (t stubbornTxn) Delete(key []byte) error {
	if len(key) == 9 {
		if ino := binary.BigEndian.Uint64(key[1:]); t.of.first.Load() <= ino && ino <= t.of.last.Load() {
			return errInjected
		}
	}
	return t.KVTxn.Delete(key)
}

// TestExpireBad has more files that can't be removed than the sweeper reads at a time:
// all others are removed, and these too when that is possible.
func TestExpireBad(t *testing.T) {
	kit.Check(t)
	kv := &stubborn{KV: memkv.New()}
	r := newKeyed(t, keyedOptions{kv: kv})
	m := r.memory(1, 4*kib, 1)
	set := make([]objects.Keyed, 300)
	for i, key := range manyKeys("bad", len(set)) {
		set[i] = objects.Keyed{Key: key, Blobs: m.blobs([2]uint64{uint64(i), 100})}
	}
	kv.last.Store(1 << 62)
	for i, one := range r.user.Gather(r.ctx(), set, objects.GatherOptions{Expires: r.after(time.Millisecond)}) {
		if one.Err != nil {
			t.Fatalf("key %d: %v", i, one.Err)
		}
	}
	first, last := r.keyIno(set[0].Key), r.keyIno(set[len(set)-1].Key)
	kv.first.Store(uint64(first))
	kv.last.Store(uint64(last))
	r.gather("good", objects.GatherOptions{}, m.all())
	good := r.keyIno("good")
	if err := r.user.Expire(r.ctx(), "good", r.after(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	r.gone(good)
	if _, err := r.meta.Get(r.ctx(), first); err != nil {
		t.Errorf("the first that can't be removed: %v", err)
	}
	kv.last.Store(0)
	r.gone(first, last)
}

// TestTTL tests user.hmc.ttl.
func TestTTL(t *testing.T) {
	kit.Check(t)
	c := &clock{}
	r := newKeyed(t, keyedOptions{now: c.now})
	f := r.create("sim0", "file")
	defer func() {
		r.close(f)
		if err := r.store.Unlink(r.ctx(), r.root("sim0"), "file"); err != nil {
			t.Error(err)
		}
	}()
	const name = "user.hmc.ttl"
	none := func() {
		t.Helper()
		if _, err := r.store.GetXattr(r.ctx(), f.Ino(), name); !errors.Is(err, metadata.ErrNoXattr) {
			t.Errorf("read: %v", err)
		}
		names, err := r.store.ListXattr(r.ctx(), f.Ino())
		if err != nil || slices.Contains(names, name) {
			t.Errorf("listed: %v, %v", names, err)
		}
	}
	none()
	if err := r.store.RemoveXattr(r.ctx(), f.Ino(), name); !errors.Is(err, metadata.ErrNoXattr) {
		t.Errorf("removed: %v", err)
	}
	for value, want := range map[string]int{"2000": 2000, "5000s": 5000} {
		if err := r.store.SetTTL(r.ctx(), me(), f.Ino(), value, 0); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Second)
		got, err := r.store.GetXattr(r.ctx(), f.Ino(), name)
		if n, bad := strconv.Atoi(string(got)); err != nil || bad != nil || n >= want || n < want-1000 {
			t.Errorf("%q reads %q, %v", value, got, err)
		}
		names, err := r.store.ListXattr(r.ctx(), f.Ino())
		if err != nil || !slices.Contains(names, name) {
			t.Errorf("listed: %v, %v", names, err)
		}
	}
	for _, value := range []string{"", "0", "-1", "s", "20 s", "1m", "9223372036854775807", "1.5"} {
		if err := r.store.SetTTL(r.ctx(), me(), f.Ino(), value, 0); !errors.Is(err, objects.ErrInvalid) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if err := r.store.SetTTL(r.ctx(), me(), f.Ino(), "9", metadata.XattrCreate); !errors.Is(err, metadata.ErrExist) {
		t.Errorf("created again: %v", err)
	}
	if err := r.store.RemoveXattr(r.ctx(), f.Ino(), name); err != nil {
		t.Fatal(err)
	}
	none()
	if err := r.store.SetTTL(r.ctx(), me(), f.Ino(), "9", metadata.XattrReplace); !errors.Is(err, metadata.ErrNoXattr) {
		t.Errorf("replaced: %v", err)
	}
	if err := r.store.SetXattr(r.ctx(), r.root("sim0"), name, []byte("9"), 0); !errors.Is(err, objects.ErrUnsupported) {
		t.Errorf("of a directory: %v", err)
	}
}

// TestUnfinishedFileEnds: a regular file with the prefix of unfinished files is created
// with a time to live, and expires; a directory with the prefix, and other files, do
// not.
func TestUnfinishedFileEnds(t *testing.T) {
	kit.Check(t)
	c := &clock{}
	r := newKeyed(t, keyedOptions{now: c.now})
	dir := r.root("host")
	made := func(name string, typ metadata.Mode) objects.Attr {
		a, err := r.store.Create(r.ctx(), dir, name, metadata.Node{Mode: typ | 0o700})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	left := made(objects.UnfinishedPrefix+"1", metadata.TypeRegular)
	folder := made(objects.UnfinishedPrefix+"2", metadata.TypeDir)
	plain := made("3", metadata.TypeRegular)
	if left.Expires == (metadata.Timespec{}) || folder.Expires != plain.Expires || plain.Expires != (metadata.Timespec{}) {
		t.Errorf("they end at %v, %v and %v", left.Expires, folder.Expires, plain.Expires)
	}
	c.advance(2 * objects.UnfinishedTTL)
	r.gather("now", objects.GatherOptions{Expires: r.after(-objects.UnfinishedTTL)}, r.memory(1, 4*kib, 2).all()) // it looks at the clock then
	r.gone(left.Ino)
	for _, name := range []string{folder.Name, plain.Name} {
		if _, err := r.store.Lookup(r.ctx(), dir, name); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(r.store.Rmdir(r.ctx(), dir, folder.Name), r.store.Unlink(r.ctx(), dir, plain.Name)); err != nil {
		t.Error(err)
	}
}
