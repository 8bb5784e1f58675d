package objects_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// long bounds the wait of a test for what must happen.
const long = time.Minute

// user is a holder with memory of a device of its own.
type user struct {
	*objects.Holder
	rig    *rig
	mem    *devices.Memory
	region *objects.Region
}

// user makes a holder that has registered n bytes of a device, with the content
// of a seed. It ends with the test, if it has not before.
func (r *rig) user(device int, seed uint64, n int) *user {
	r.t.Helper()
	return r.userAs(objects.Caller{}, device, seed, n)
}

// userAs is user for a holder of a user.
func (r *rig) userAs(who objects.Caller, device int, seed uint64, n int) *user {
	r.t.Helper()
	u := r.newUserAs(who, device, seed, n)
	r.t.Cleanup(u.leave)
	return u
}

// leave ends the user and its memory.
func (u *user) leave() {
	if err := errors.Join(u.Close(context.Background()), u.mem.Release()); err != nil {
		u.rig.t.Error(err)
	}
}

// newUser is user for one that leaves before the test ends.
func (r *rig) newUser(device int, seed uint64, n int) *user {
	r.t.Helper()
	return r.newUserAs(objects.Caller{}, device, seed, n)
}

// newUserAs is newUser for a holder of a user.
func (r *rig) newUserAs(who objects.Caller, device int, seed uint64, n int) *user {
	r.t.Helper()
	u := &user{Holder: r.store.NewHolder(who), rig: r}
	var err error
	if u.mem, err = r.devs[device].Alloc(r.ctx(), devices.Size(n)); err != nil {
		r.t.Fatal(err)
	}
	u.fill(0, kit.Bytes(seed, 0, n))
	if u.region, err = u.Adopt(r.ctx(), r.devs[device].Info().Name, u.mem); err != nil {
		r.t.Fatal(err)
	}
	return u
}

func (u *user) fill(off int, p []byte) {
	u.rig.t.Helper()
	span, err := u.mem.Span(devices.Range{Off: devices.Offset(off), Len: devices.Size(len(p))})
	if err == nil {
		err = u.mem.Device().CopyIn(u.rig.ctx(), span, p)
	}
	if err != nil {
		u.rig.t.Fatal(err)
	}
}

func (u *user) bytes() []byte {
	u.rig.t.Helper()
	p := make([]byte, u.mem.Size())
	if err := u.mem.Device().CopyOut(u.rig.ctx(), p, u.mem.All()); err != nil {
		u.rig.t.Fatal(err)
	}
	return p
}

// keyed is a key for stretches of the user's memory, each an offset and a
// length.
func (u *user) keyed(key string, at ...uint64) objects.Keyed {
	k := objects.Keyed{Key: key}
	for i := 0; i < len(at); i += 2 {
		k.Blobs = append(k.Blobs, objects.Blob{Region: u.region, Off: at[i], Len: at[i+1]})
	}
	return k
}

// bind sets one key.
func (u *user) bind(k objects.Keyed) error { return u.Bind(u.rig.ctx(), []objects.Keyed{k})[0] }

func (u *user) mustBind(k objects.Keyed) objects.Ino {
	u.rig.t.Helper()
	if err := u.bind(k); err != nil {
		u.rig.t.Fatal(err)
	}
	return u.rig.keyIno(k.Key)
}

// get copies all of a key into stretches of the user's memory.
func (u *user) get(k objects.Keyed, replica bool) error {
	return u.Scatter(u.rig.ctx(), objects.Scatter{Keyed: k, Replica: replica})
}

func (u *user) close() {
	u.rig.t.Helper()
	if err := u.Close(u.rig.ctx()); err != nil {
		u.rig.t.Fatal(err)
	}
}

func (u *user) dropLocal(key string) {
	u.rig.t.Helper()
	if err := u.DropLocal(u.rig.ctx(), []string{key})[0]; err != nil {
		u.rig.t.Fatal(err)
	}
}

func (r *rig) keyIno(key string) objects.Ino {
	r.t.Helper()
	ino, err := r.store.KeyIno(r.ctx(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return ino
}

func (r *rig) wantPath(key, want string) {
	r.t.Helper()
	if path, err := r.store.KeyPath(r.ctx(), key); err != nil || path != want {
		r.t.Errorf("key %s is %q, %v; want %q", key, path, err, want)
	}
}

// wantBytes reads all of a key.
func (r *rig) wantBytes(key string, want []byte) {
	r.t.Helper()
	f := r.open(r.keyIno(key))
	defer r.close(f)
	if i := kit.FirstDiff(r.read(f, 0, len(want)+1), want); i >= 0 {
		r.t.Errorf("byte %d of key %s is not as it should be", i, key)
	}
}

func (r *rig) wantGone(key string) {
	r.t.Helper()
	if ino, err := r.store.KeyIno(r.ctx(), key); !errors.Is(err, metadata.ErrNotExist) {
		r.t.Errorf("key %s is object %d, %v", key, ino, err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func twoDevices(t *testing.T) *rig {
	t.Helper()
	kit.Check(t)
	return newRig(t, small(false), small(true))
}
