package objects_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestKeysAreToldOf: a key that is set in any way has an event when it is visible.
func TestKeysAreToldOf(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 8*kib, 1)
	f := r.create("sim0", "file")
	setKey := func(key string) error {
		return r.store.SetXattr(r.ctx(), f.Ino(), "user.hmc.key", []byte(key), 0)
	}
	events := r.store.Listen()
	defer events.Close()
	created := func(key string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(r.ctx(), within)
		defer cancel()
		for {
			ev, err := events.Next(ctx)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			if ev.Kind == objects.EventCreated && ev.Key == key {
				return
			}
		}
	}
	for key, come := range map[string]func(key string) error{
		"gathered": func(key string) error {
			return r.user.Gather(r.ctx(), []objects.Keyed{{Key: key, Blobs: m.all()}}, objects.GatherOptions{})[0].Err
		},
		"bound": func(key string) error {
			return r.user.Bind(r.ctx(), []objects.Keyed{{Key: key, Blobs: m.all()}})[0]
		},
		"by hand":    setKey,
		"by hand, 2": setKey,
	} {
		if key == "by hand" || key == "by hand, 2" {
			key = fmt.Sprintf("hand%d", len(key))
		}
		if err := come(key); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		created(key)
		if there, err := r.store.KeyThere(r.ctx(), key); err != nil || !there {
			t.Errorf("%s is told of and not there: %v", key, err)
		}
	}
	r.close(f)
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "file"); err != nil {
		t.Error(err)
	}
}

// TestLostKeys follows a key whose bytes were lost with their memory: it does not
// exist, any user can set it, and the lost object is removed.
func TestLostKeys(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	keep := r.memory(2, 8*kib, 2)
	f := r.create("sim0", "file")
	for key, take := range map[string]func(key string) error{
		"gather": func(key string) error {
			return r.user.Gather(r.ctx(), []objects.Keyed{{Key: key, Blobs: keep.all()}}, objects.GatherOptions{Existing: objects.ExistingFail})[0].Err
		},
		"bind": func(key string) error {
			return r.user.Bind(r.ctx(), []objects.Keyed{{Key: key, Blobs: keep.all()}})[0]
		},
		"setfattr": func(key string) error {
			r.write(f, 0, keep.bytes())
			return r.store.SetXattr(r.ctx(), f.Ino(), "user.hmc.key", []byte(key), 0)
		},
	} {
		m := r.memory(1, 4*kib, 1)
		if err := r.user.Bind(r.ctx(), []objects.Keyed{{Key: key, Blobs: m.all()}})[0]; err != nil {
			t.Fatal(err)
		}
		old := r.keyIno(key)
		if err := m.region.Close(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if there, err := r.store.KeyThere(r.ctx(), key); there || err != nil {
			t.Errorf("%s: a lost key is there, %v", key, err)
		}
		err := r.user.Scatter(r.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: key, Blobs: keep.blobs([2]uint64{0, 1})}})
		if !errors.Is(err, objects.ErrLost) {
			t.Errorf("%s: read: %v", key, err)
		}
		if err := take(key); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		r.holds(key, keep.bytes())
		if _, err := r.meta.Get(r.ctx(), old); !errors.Is(err, metadata.ErrNotExist) {
			t.Errorf("%s: the lost object: %v", key, err)
		}
	}
	r.close(f)
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "file"); err != nil {
		t.Error(err)
	}
}

// TestDropLinked drops a key whose object has a second name: the object remains under
// that name.
func TestDropLinked(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 4*kib, 1)
	r.gather("k", objects.GatherOptions{}, m.all())
	ino := r.keyIno("k")
	if _, err := r.store.Link(r.ctx(), ino, r.root("host"), "name"); err != nil {
		t.Fatal(err)
	}
	if err := r.user.Drop(r.ctx(), []string{"k"})[0]; err != nil {
		t.Fatal(err)
	}
	r.absent("k")
	if a := r.attr(ino); a.Nlink != 1 || a.Key != "" {
		t.Errorf("%d names, key %q", a.Nlink, a.Key)
	}
	f := r.open(ino)
	if d := kit.FirstDiff(r.read(f, 0, 4*kib), m.bytes()); d >= 0 {
		t.Errorf("byte %d differs", d)
	}
	r.close(f)
	if err := r.store.Unlink(r.ctx(), r.root("host"), "name"); err != nil {
		t.Error(err)
	}
}
