package objects_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// The object is the memory itself, with the blobs concatenated; bytes around the blobs
// are neither read nor written.
func TestBindIsTheMemory(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 100_000)
	ino := u.mustBind(u.keyed("k", 10_000, 5000, 50_000, 10, 15_000, 20_000, 90_000, 10_000))
	r.wantState(ino, objects.StateBound)
	r.wantPath("k", "sim0/.keys/k")
	a := r.attr(ino)
	if a.Size != 35_010 || a.Mode.Perm() != 0o600 || a.Key != "k" {
		t.Errorf("size %d, mode %o, key %q", a.Size, a.Mode.Perm(), a.Key)
	}
	if blobs, err := r.store.GetXattr(r.ctx(), ino, "user.hmc.blobs"); string(blobs) != "5000,10,20000,10000" {
		t.Errorf("blobs %q, %v", blobs, err)
	}
	if text, err := r.store.GetXattr(r.ctx(), ino, objects.XattrBind); !errors.Is(err, metadata.ErrNoXattr) {
		t.Errorf("it is bound to %q, %v", text, err)
	}
	memory := u.bytes()
	r.wantBytes("k", slicesOf(memory, 10_000, 5000, 50_000, 10, 15_000, 20_000, 90_000, 10_000))
	f := r.open(ino)
	defer r.close(f)
	r.write(f, 4990, kit.Bytes(2, 0, 30)) // over two seams
	copy(memory[14_990:15_000], kit.Bytes(2, 0, 10))
	copy(memory[50_000:50_010], kit.Bytes(2, 10, 10))
	copy(memory[15_000:15_010], kit.Bytes(2, 20, 10))
	if i := kit.FirstDiff(u.bytes(), memory); i >= 0 {
		t.Errorf("byte %d of the memory is not what it should be", i)
	}
	if _, err := f.WriteAt(r.ctx(), []byte{1}, objects.Write{Off: 35_010}); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("write behind the end: %v", err)
	}
	if err := r.store.Unlink(r.ctx(), r.attr(ino).Parent, "k"); err != nil {
		t.Fatal(err)
	}
	r.wantGone("k")
	if i := kit.FirstDiff(u.bytes(), memory); i >= 0 {
		t.Errorf("byte %d of the memory has changed with the removal", i)
	}
}

// slicesOf joins stretches, each an offset and a length.
func slicesOf(p []byte, at ...int) []byte {
	var all []byte
	for i := 0; i < len(at); i += 2 {
		all = append(all, p[at[i]:at[i]+at[i+1]]...)
	}
	return all
}

// Repeating a call changes nothing; setting other blobs is refused.
func TestBindAgainAndOthers(t *testing.T) {
	r := twoDevices(t)
	u, other := r.user(0, 1, 10_000), r.user(0, 2, 10_000)
	ino := u.mustBind(u.keyed("k", 0, 100, 200, 100))
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"the same blobs":   {u.bind(u.keyed("k", 0, 100, 200, 100)), nil},
		"another order":    {u.bind(u.keyed("k", 200, 100, 0, 100)), objects.ErrInconsistent},
		"fewer":            {u.bind(u.keyed("k", 0, 100)), objects.ErrInconsistent},
		"another's":        {other.bind(other.keyed("k", 0, 100, 200, 100)), metadata.ErrExist},
		"another's memory": {other.bind(u.keyed("l", 0, 100)), objects.ErrInvalid},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.want)
		}
	}
	if now := r.keyIno("k"); now != ino {
		t.Errorf("object %d has become %d", ino, now)
	}
	r.wantBytes("k", slicesOf(kit.Bytes(1, 0, 10_000), 0, 100, 200, 100))
	r.wantGone("l")
}

// A key that can't be set does not affect the others, at any position in the list.
func TestBindPartly(t *testing.T) {
	r := twoDevices(t)
	u, other := r.user(0, 1, 10_000), r.user(1, 2, 10_000)
	second, err := u.Adopt(r.ctx(), "sim1", other.mem)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := u.Adopt(r.ctx(), "sim1", other.mem)
	if err == nil {
		err = ended.Close(r.ctx())
	}
	if err != nil {
		t.Fatal(err)
	}
	other.mustBind(other.keyed("taken", 0, 1))
	blob := func(reg *objects.Region, off, n uint64) []objects.Blob {
		return []objects.Blob{{Region: reg, Off: off, Len: n}}
	}
	cases := []struct {
		name string
		set  objects.Keyed
		want error
	}{
		{"taken", u.keyed("taken", 0, 100), metadata.ErrExist},
		{"good", u.keyed("a", 0, 100), nil},
		{"no blobs", objects.Keyed{Key: "b"}, objects.ErrInvalid},
		{"no memory", objects.Keyed{Key: "c", Blobs: make([]objects.Blob, 1)}, objects.ErrInvalid},
		{"beyond the end", u.keyed("d", 9_999, 2), objects.ErrInvalid},
		{"far beyond the end", u.keyed("e", 1<<63, 1<<63), objects.ErrInvalid},
		{"an empty blob", u.keyed("f", 0, 0), objects.ErrInvalid},
		{"another's", other.keyed("g", 0, 1), objects.ErrInvalid},
		{"memory that was let go", objects.Keyed{Key: "h", Blobs: blob(ended, 0, 1)}, objects.ErrLost},
		{"two devices", objects.Keyed{Key: "i", Blobs: append(blob(second, 0, 1), blob(u.region, 0, 1)...)}, objects.ErrInvalid},
		{"a bad key", u.keyed("no/key", 0, 1), metadata.ErrInvalidKey},
		{"the other device", objects.Keyed{Key: "j", Blobs: blob(second, 5, 100)}, nil},
		{"good too", u.keyed("z", 100, 100), nil},
	}
	set := make([]objects.Keyed, len(cases))
	for i := range cases {
		set[i] = cases[i].set
	}
	for i, err := range u.Bind(r.ctx(), set) {
		if !errors.Is(err, cases[i].want) {
			t.Errorf("%s: %v, want %v", cases[i].name, err, cases[i].want)
		}
	}
	r.wantBytes("a", kit.Bytes(1, 0, 100))
	r.wantBytes("z", kit.Bytes(1, 100, 100))
	r.wantBytes("j", kit.Bytes(2, 5, 100))
	r.wantPath("j", "sim1/.keys/j")
	if keys, err := r.store.Keys(r.ctx(), "", 100); err != nil || len(keys) != 4 {
		t.Errorf("keys %v, %v", keys, err)
	}
}

// Many keys set at once all exist, each with its own bytes.
func TestBindMany(t *testing.T) {
	r := twoDevices(t)
	const count = 1000
	u := r.user(0, 1, count*16)
	var set []objects.Keyed
	for i := range uint64(count) {
		set = append(set, u.keyed(fmt.Sprint("k", i), i*16, 16))
	}
	if err := errors.Join(u.Bind(r.ctx(), set)...); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		r.wantBytes(fmt.Sprint("k", i), kit.Bytes(1, int64(i*16), 16))
	}
	inos := []objects.Ino{r.keyIno("k0"), r.keyIno("k999")}
	u.close()
	for _, ino := range inos {
		r.wantState(ino, objects.StateLost)
	}
	if left, err := r.meta.Bindings(r.ctx()); err != nil || len(left) != 0 {
		t.Errorf("%d bindings of nothing, %v", len(left), err)
	}
}
