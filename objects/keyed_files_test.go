package objects_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// file makes a file of a user, mode 0600, with the bytes of a seed, also where users
// may not make files.
func (r *keyedRig) file(dir objects.Ino, name string, seed uint64) objects.Ino {
	r.t.Helper()
	a, err := r.meta.Create(r.ctx(), dir, name, metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if err != nil {
		r.t.Fatal(err)
	}
	if a.Device == "host" {
		r.put(uint64(a.Ino), nil)
	}
	f := r.open(a.Ino)
	r.write(f, 0, kit.Bytes(seed, 0, 4*kib))
	r.close(f)
	return a.Ino
}

// TestGatherOverFiles sets keys that users' files have, and keys whose names in .keys
// belong to files without the key.
func TestGatherOverFiles(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 8*kib, 1)
	r.gather("first", objects.GatherOptions{}, m.all()) // makes the directory
	dir, err := r.store.Lookup(r.ctx(), r.root("host"), ".keys")
	if err != nil {
		t.Fatal(err)
	}
	stranger := r.store.NewHolder(objects.Caller{UID: 4711, GID: 4711, Groups: []uint32{}})
	theirs, err := stranger.Adopt(r.ctx(), "sim0", m.mem)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, nameless := r.file(r.root("sim1"), "elsewhere", 2), r.file(dir.Ino, "nameless", 3)
	if err = r.store.SetXattr(r.ctx(), elsewhere, "user.hmc.key", []byte("elsewhere"), 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		user *objects.Holder
		rule objects.ExistingRule
		skip bool
		err  error
	}{
		{"elsewhere", r.user, objects.ExistingSkip, true, nil},
		{"elsewhere", r.user, objects.ExistingFail, false, metadata.ErrExist},
		{"elsewhere", stranger, objects.ExistingReplace, false, objects.ErrForbidden},
		{"elsewhere", r.user, objects.ExistingReplace, false, nil},
		{"nameless", r.user, objects.ExistingSkip, false, metadata.ErrExist},
		{"nameless", r.user, objects.ExistingFail, false, metadata.ErrExist},
		{"nameless", stranger, objects.ExistingReplace, false, objects.ErrForbidden},
		{"nameless", r.user, objects.ExistingReplace, false, nil},
	} {
		blobs := m.all()
		if c.user == stranger {
			blobs[0].Region = theirs
		}
		got := c.user.Gather(r.ctx(), keyedSet(c.key, blobs), objects.GatherOptions{Existing: c.rule})[0]
		if got.Skipped != c.skip || !errors.Is(got.Err, c.err) || c.err == nil && got.Err != nil {
			t.Errorf("%s, rule %d: %+v", c.key, c.rule, got)
		}
	}
	r.holds("elsewhere", m.bytes())
	r.holds("nameless", m.bytes())
	r.gone(nameless)
	if a := r.attr(elsewhere); a.Key != "" || a.Size != 4*kib {
		t.Errorf("the file that had the key: %+v", a)
	}
	if err = r.store.Unlink(r.ctx(), r.root("sim1"), "elsewhere"); err != nil {
		t.Error(err)
	}
	if err = stranger.Close(r.ctx()); err != nil {
		t.Error(err)
	}
}

// TestKeyFromOtherTier replaces an object of a card by one on the host: the card's
// object, which was made for the key, is removed.
func TestKeyFromOtherTier(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m, other := r.memory(1, 8*kib, 1), r.memory(2, 8*kib, 2)
	if err := r.user.Bind(r.ctx(), keyedSet("k", m.all()))[0]; err != nil {
		t.Fatal(err)
	}
	old := r.keyIno("k")
	r.gather("k", replacing(), other.all())
	r.gone(old)
	r.holds("k", other.bytes())
	if d := kit.DiffAt(m.bytes(), 1, 0); d >= 0 {
		t.Errorf("the owner's byte %d has changed", d)
	}
}

// TestKeyedRefusals makes calls that fail before anything is copied.
func TestKeyedRefusals(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 64*kib, 1)
	many := make([]objects.Blob, 40000)
	for i := range many {
		many[i] = objects.Blob{Region: m.region, Off: uint64(i), Len: 1}
	}
	set := []objects.Keyed{
		{Key: "many", Blobs: many},
		{Key: "none", Blobs: nil},
		{Key: "beyond", Blobs: m.blobs([2]uint64{1, 64 * kib})},
		{Key: "far", Blobs: m.blobs([2]uint64{1 << 63, 1 << 63})},
		{Key: "empty", Blobs: m.blobs([2]uint64{0, 0})},
		{Key: "nowhere", Blobs: []objects.Blob{{Len: 1}}},
		{Key: strings.Repeat("k", 256), Blobs: m.all()},
	}
	want := []error{
		metadata.ErrTooLarge, objects.ErrInvalid, objects.ErrInvalid, objects.ErrInvalid,
		objects.ErrInvalid, objects.ErrInvalid, metadata.ErrInvalidKey,
	}
	for i, one := range r.user.Gather(r.ctx(), set, objects.GatherOptions{}) {
		if !errors.Is(one.Err, want[i]) {
			t.Errorf("%.20s: %v", set[i].Key, one.Err)
		}
	}
	r.gather("k", objects.GatherOptions{}, m.all())
	ended := r.store.NewHolder(me())
	if err := ended.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	_, info := ended.KeyInfo(r.ctx(), "k")
	for what, err := range map[string]error{
		"gather":  ended.Gather(r.ctx(), keyedSet("k", m.all()), objects.GatherOptions{})[0].Err,
		"scatter": ended.Scatter(r.ctx(), objects.Scatter{Keyed: keyedSet("k", m.all())[0]}),
		"drop":    ended.Drop(r.ctx(), []string{"k"})[0],
		"expire":  ended.Expire(r.ctx(), "k", r.after(0)),
		"info":    info,
	} {
		if !errors.Is(err, objects.ErrClosed) {
			t.Errorf("%s by who has ended: %v", what, err)
		}
	}
	r.noStrays(r.ctx())
}

// TestGatherWithoutHost is a mount that has no host memory.
func TestGatherWithoutHost(t *testing.T) {
	kit.Check(t)
	dev := sim.New(0, small(true))
	r := &keyedRig{rig: wrapped(t, dev)}
	r.user = r.store.NewHolder(me())
	mem, err := dev.Alloc(r.ctx(), devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	region, err := r.user.Adopt(r.ctx(), "sim0", mem)
	if err != nil {
		t.Fatal(err)
	}
	set := keyedSet("k", []objects.Blob{{Region: region, Len: 10}})
	if one := r.user.Gather(r.ctx(), set, objects.GatherOptions{})[0]; !errors.Is(one.Err, objects.ErrUnsupported) {
		t.Errorf("%+v", one)
	}
	if err := errors.Join(r.user.Close(r.ctx()), mem.Release()); err != nil {
		t.Error(err)
	}
}

// TestGatherHoles gathers a file that has holes, also at its end.
func TestGatherHoles(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	for _, device := range []string{"host", "sim0"} {
		ino := r.file(r.root(device), "file", 2)
		size := uint64(100 * kib)
		if _, err := r.store.SetAttr(r.ctx(), ino, objects.Change{Size: &size}); err != nil {
			t.Fatal(err)
		}
		region, err := r.user.RegisterFile(r.ctx(), ino)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]byte, size)
		kit.FillAt(want[:4*kib], 2, 0)
		r.gather("k", replacing(), []objects.Blob{{Region: region, Len: size}})
		r.holds("k", want)
		if err = errors.Join(region.Close(r.ctx()), r.store.Unlink(r.ctx(), r.root(device), "file")); err != nil {
			t.Error(err)
		}
	}
}
