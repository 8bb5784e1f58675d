package objects_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const kib = 1 << 10

// TestGatherScatter moves blobs of several sizes to the host and back, from and
// to cards that can be mapped and that can't.
func TestGatherScatter(t *testing.T) {
	kit.Check(t)
	for _, c := range []struct {
		name   string
		ranges [][2]uint64
	}{
		{"one", [][2]uint64{{0, 100}}},
		{"joined", [][2]uint64{{0, 4096}, {4096, 4096}, {8192, 1}}},
		{"apart", [][2]uint64{{9000, 10}, {1, 5}, {600 * kib, 300 * kib}, {0, 1}}},
		{"same twice", [][2]uint64{{5, 70000}, {5, 70000}}},
		{"long", [][2]uint64{{1, 2 << 20}, {3 << 20, 700 * kib}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			kit.Check(t)
			r := newKeyed(t, keyedOptions{})
			for card := 1; card <= 2; card++ {
				from, to := r.memory(card, 4<<20, 7), r.memory(3-card, 4<<20, 8)
				src, dst := from.bytes(), to.bytes()
				r.gather("k", objects.GatherOptions{Existing: objects.ExistingReplace}, from.blobs(c.ranges...))
				var want []byte
				var place [][2]uint64
				at := uint64(3)
				for _, b := range c.ranges {
					want = append(want, src[b[0]:b[0]+b[1]]...)
					copy(dst[at:], src[b[0]:b[0]+b[1]])
					place = append(place, [2]uint64{at, b[1]})
					at += b[1] + 2
				}
				r.holds("k", want)
				s := objects.Scatter{Keyed: objects.Keyed{Key: "k", Blobs: to.blobs(place...)}, Exact: true}
				if err := r.user.Scatter(r.ctx(), s); err != nil {
					t.Fatal(err)
				}
				if d := kit.FirstDiff(to.bytes(), dst); d >= 0 {
					t.Fatalf("card %d: byte %d differs", card, d)
				}
				info, err := r.user.KeyInfo(r.ctx(), "k")
				if err != nil || info.Attr.Size != uint64(len(want)) || len(info.Blobs) != len(c.ranges) {
					t.Fatalf("%+v, %v", info, err)
				}
			}
		})
	}
}

// TestGatherExisting is each rule with keys that are free, taken and lost.
func TestGatherExisting(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 64*kib, 1)
	old := m.bytes()
	for _, key := range []string{"skip", "replace", "fail"} {
		r.gather(key, objects.GatherOptions{}, m.all())
	}
	m.fill(2)
	fresh := m.bytes()
	for _, c := range []struct {
		rule objects.ExistingRule
		key  string
		skip bool
		err  error
		want []byte
	}{
		{objects.ExistingSkip, "skip", true, nil, old},
		{objects.ExistingReplace, "replace", false, nil, fresh},
		{objects.ExistingFail, "fail", false, metadata.ErrExist, old},
	} {
		set := []objects.Keyed{{Key: c.key, Blobs: m.all()}, {Key: c.key + "-free", Blobs: m.all()}}
		got := r.user.Gather(r.ctx(), set, objects.GatherOptions{Existing: c.rule})
		if got[0].Skipped != c.skip || !errors.Is(got[0].Err, c.err) {
			t.Errorf("%s: %+v", c.key, got[0])
		}
		if got[1].Skipped || got[1].Err != nil {
			t.Errorf("%s: %+v", set[1].Key, got[1])
		}
		r.holds(c.key, c.want)
		r.holds(set[1].Key, fresh)
	}
}

// TestGatherOpen replaces an object that a reader has open: the reader continues with
// the old bytes, which are freed with its handle.
func TestGatherOpen(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 256*kib, 1)
	old := m.bytes()
	r.gather("k", objects.GatherOptions{}, m.all())
	ino, err := r.store.KeyIno(r.ctx(), "k")
	if err != nil {
		t.Fatal(err)
	}
	f := r.open(ino)
	m.fill(2)
	r.gather("k", objects.GatherOptions{Existing: objects.ExistingReplace}, m.all())
	if !bytes.Equal(r.read(f, 0, len(old)), old) {
		t.Error("not the old bytes")
	}
	r.close(f)
	r.holds("k", m.bytes())
	r.noStrays(r.ctx())
}

// TestGatherTwice sets a key twice in one call, while the object that it named before
// is open: the second object remains, and no memory of the first.
func TestGatherTwice(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m, first, second := r.memory(1, 4*kib, 1), r.memory(1, 4*kib, 2), r.memory(1, 4*kib, 3)
	r.gather("k", objects.GatherOptions{}, m.all())
	ino, err := r.store.KeyIno(r.ctx(), "k")
	if err != nil {
		t.Fatal(err)
	}
	f := r.open(ino)
	set := []objects.Keyed{{Key: "k", Blobs: first.all()}, {Key: "k", Blobs: second.all()}}
	for i, g := range r.user.Gather(r.ctx(), set, objects.GatherOptions{Existing: objects.ExistingReplace}) {
		if g.Err != nil {
			t.Errorf("%d: %v", i, g.Err)
		}
	}
	r.close(f)
	r.holds("k", second.bytes())
	r.noStrays(r.ctx())
}

// TestGatherMany sets more keys than one chunk has, some of which can't be.
func TestGatherMany(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	const n, size = 700, 3000
	m := r.memory(2, n*size, 5)
	keys := manyKeys("many", n)
	set := make([]objects.Keyed, n)
	for i := range set {
		set[i] = objects.Keyed{Key: keys[i], Blobs: m.blobs([2]uint64{uint64(i * size), 1000}, [2]uint64{uint64(i*size + 1000), size - 1000})}
	}
	bad := map[int]error{0: objects.ErrInvalid, 300: metadata.ErrInvalidKey, n - 1: objects.ErrInvalid}
	set[0].Blobs = m.blobs([2]uint64{n * size, 1})
	set[300].Key = "a/b"
	set[n-1].Blobs = nil
	for i, one := range r.user.Gather(r.ctx(), set, objects.GatherOptions{}) {
		if one.Skipped || !errors.Is(one.Err, bad[i]) || bad[i] == nil && one.Err != nil {
			t.Fatalf("key %d: %+v", i, one)
		}
	}
	all := m.bytes()
	for i := range set {
		if bad[i] == nil {
			r.holds(keys[i], all[i*size:(i+1)*size])
		}
	}
	entries, err := r.store.Keys(r.ctx(), "", 2*n)
	if err != nil || len(entries) != n-len(bad) {
		t.Fatalf("%d keys, %v", len(entries), err)
	}
	for i, err := range r.user.Drop(r.ctx(), slices.Concat(keys[:1], keys)) {
		if err != nil {
			t.Fatalf("drop %d: %v", i, err)
		}
	}
	if used := r.used("host"); used != 0 {
		t.Errorf("%v of host memory in use", used)
	}
}

// TestGatherForbidden tries operations on private objects that another user may not do.
func TestGatherForbidden(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(1, 4*kib, 1)
	r.gather("mine", objects.GatherOptions{}, m.all())
	stranger := r.store.NewHolder(objects.Caller{UID: 4711, GID: 4711, Groups: []uint32{}})
	defer func() {
		if err := stranger.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	region, err := stranger.Adopt(r.ctx(), "sim0", m.mem)
	if err != nil {
		t.Fatal(err)
	}
	k := objects.Keyed{Key: "mine", Blobs: []objects.Blob{{Region: region, Len: 4 * kib}}}
	_, infoErr := stranger.KeyInfo(r.ctx(), "mine")
	for what, err := range map[string]error{
		"replace": stranger.Gather(r.ctx(), []objects.Keyed{k}, objects.GatherOptions{Existing: objects.ExistingReplace})[0].Err,
		"read":    stranger.Scatter(r.ctx(), objects.Scatter{Keyed: k}),
		"drop":    stranger.Drop(r.ctx(), []string{"mine"})[0],
		"expire":  stranger.Expire(r.ctx(), "mine", r.after(0)),
		"info":    infoErr,
	} {
		if !errors.Is(err, objects.ErrForbidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.holds("mine", m.bytes())
	k.Key = "theirs"
	got := stranger.Gather(r.ctx(), []objects.Keyed{k}, objects.GatherOptions{})[0]
	if !errors.Is(got.Err, objects.ErrForbidden) {
		t.Errorf("in a directory of others: %v", got.Err)
	}
	dir, err := r.store.Lookup(r.ctx(), r.root("host"), ".keys")
	if err != nil {
		t.Fatal(err)
	}
	mode := metadata.Mode(0o1777)
	if _, err = r.store.SetAttr(r.ctx(), dir.Ino, objects.Change{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	got = stranger.Gather(r.ctx(), []objects.Keyed{k}, objects.GatherOptions{})[0]
	ino, err := r.store.KeyIno(r.ctx(), "theirs")
	if got.Err != nil || err != nil {
		t.Fatal(got.Err, err)
	}
	if a := r.attr(ino); a.UID != 4711 || a.GID != 4711 || a.Mode.Perm() != 0o600 {
		t.Errorf("%d:%d, mode %o", a.UID, a.GID, a.Mode.Perm())
	}
}

// TestScatterShapes tries shapes on a source of 100, 200 and 300 bytes.
func TestScatterShapes(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m, to := r.memory(1, 600, 1), r.memory(2, 600, 2)
	r.gather("k", objects.GatherOptions{}, m.blobs([2]uint64{0, 100}, [2]uint64{100, 200}, [2]uint64{300, 300}))
	src := m.bytes()
	for _, c := range []struct {
		name  string
		sizes []uint64
		off   uint64
		exact bool
		fits  bool
	}{
		{"all", []uint64{100, 200, 300}, 0, true, true},
		{"shorter", []uint64{1, 200, 7}, 0, false, true},
		{"shorter, exact", []uint64{100, 199, 300}, 0, true, false},
		{"from the middle", []uint64{50, 150, 250}, 50, false, true},
		{"beyond", []uint64{51, 150, 250}, 50, false, false},
		{"far beyond", []uint64{1, 1, 1}, 1<<64 - 1, false, false},
		{"one too few", []uint64{100, 200}, 0, false, false},
		{"one too many", []uint64{100, 200, 300, 1}, 0, false, false},
		{"one for all", []uint64{600}, 0, false, false},
	} {
		to.fill(2)
		want := to.bytes()
		var ranges [][2]uint64
		var at, from uint64
		for i, n := range c.sizes {
			ranges = append(ranges, [2]uint64{at, min(n, 600-at)})
			if c.fits {
				copy(want[at:at+n], src[from+c.off:])
				from += []uint64{100, 200, 300}[i]
			}
			at += n
			at = min(at, 599)
		}
		err := r.user.Scatter(r.ctx(), objects.Scatter{
			Keyed: objects.Keyed{Key: "k", Blobs: to.blobs(ranges...)}, Offset: c.off, Exact: c.exact,
		})
		shape := &objects.ShapeError{}
		switch {
		case c.fits && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !c.fits && (!errors.As(err, &shape) || !slices.Equal(shape.Want, []uint64{100, 200, 300})):
			t.Errorf("%s: %v", c.name, err)
		}
		if d := kit.FirstDiff(to.bytes(), want); d >= 0 {
			t.Errorf("%s: byte %d differs", c.name, d)
		}
	}
}

// TestScatterOfFiles reads files that users have made and given a key: with holes, in
// host and in device memory.
func TestScatterOfFiles(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	const size = 300 * kib
	to := r.memory(1, size, 9)
	for _, device := range []string{"host", "sim0", "sim1"} {
		f := r.create(device, "file")
		want := make([]byte, size)
		for _, at := range []int{10, 200 * kib, size - 5} {
			p := kit.Bytes(uint64(at), 0, min(5000, size-at))
			copy(want[at:], p)
			r.write(f, uint64(at), p)
		}
		if err := r.store.SetXattr(r.ctx(), f.Ino(), "user.hmc.key", []byte("file"), 0); err != nil {
			t.Fatal(err)
		}
		to.fill(9)
		if err := r.user.Scatter(r.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: "file", Blobs: to.all()}}); err != nil {
			t.Fatal(err)
		}
		if d := kit.FirstDiff(to.bytes(), want); d >= 0 {
			t.Errorf("%s: byte %d differs", device, d)
		}
		if err := r.user.Drop(r.ctx(), []string{"file"})[0]; err != nil {
			t.Fatal(err)
		}
		r.absent("file")
		if d := kit.FirstDiff(r.read(f, 0, size), want); d >= 0 {
			t.Errorf("%s: the file has changed at %d", device, d)
		}
		r.close(f)
		if err := r.store.Unlink(r.ctx(), r.root(device), "file"); err != nil {
			t.Fatal(err)
		}
	}
}
