package objects_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// file makes a file with the content of a seed and registers it.
func (u *user) file(name string, seed uint64, n int) (objects.Ino, *objects.Region) {
	u.rig.t.Helper()
	f := u.rig.create("sim1", name)
	defer u.rig.close(f)
	u.rig.write(f, 0, kit.Bytes(seed, 0, n))
	reg, err := u.RegisterFile(u.rig.ctx(), f.Ino())
	if err != nil {
		u.rig.t.Fatal(err)
	}
	return f.Ino(), reg
}

// of is a key for stretches of a region, each an offset and a length.
func of(reg *objects.Region, key string, at ...uint64) objects.Keyed {
	k := objects.Keyed{Key: key}
	for i := 0; i < len(at); i += 2 {
		k.Blobs = append(k.Blobs, objects.Blob{Region: reg, Off: at[i], Len: at[i+1]})
	}
	return k
}

// A file that is set as a whole gets the key itself, and its blobs.
func TestBindFile(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 4096)
	ino, reg := u.file("f", 2, 1000)
	if reg.Device() != "sim1" || reg.Size() != 1000 {
		t.Errorf("%d bytes of %s", reg.Size(), reg.Device())
	}
	wantErr(t, "a part", u.bind(of(reg, "k", 0, 999)), objects.ErrUnsupported)
	wantErr(t, "another order", u.bind(of(reg, "k", 500, 500, 0, 500)), objects.ErrUnsupported)
	wantErr(t, "with a hole", u.bind(of(reg, "k", 0, 400, 500, 500)), objects.ErrUnsupported)
	mixed := of(reg, "k", 0, 1000)
	mixed.Blobs = append(mixed.Blobs, objects.Blob{Region: u.region, Len: 10})
	wantErr(t, "a file and memory", u.bind(mixed), objects.ErrInvalid)
	r.wantGone("k")
	whole := of(reg, "k", 0, 300, 300, 700)
	for range 2 {
		if got := u.mustBind(whole); got != ino {
			t.Errorf("the key is object %d's, want %d", got, ino)
		}
	}
	r.wantPath("k", "sim1/f")
	r.wantBytes("k", kit.Bytes(2, 0, 1000))
	if blobs, err := r.store.GetXattr(r.ctx(), ino, "user.hmc.blobs"); string(blobs) != "300,700" {
		t.Errorf("blobs %q, %v", blobs, err)
	}
	wantErr(t, "with other blobs", u.bind(of(reg, "k", 0, 1000)), objects.ErrInconsistent)
	wantErr(t, "a second key", u.bind(of(reg, "l", 0, 1000)), objects.ErrInconsistent)
	wantErr(t, "memory with the key", u.bind(u.keyed("k", 0, 10)), metadata.ErrExist)
	other := r.user(0, 1, 4096)
	other.dropLocal("k") // of which it has nothing
	r.wantPath("k", "sim1/f")
	u.dropLocal("k")
	r.wantGone("k")
	if _, err := r.store.Lookup(r.ctx(), r.root("sim1"), "f"); err != nil {
		t.Errorf("the file is gone with its key: %v", err)
	}
	// A lost object is replaced by a file, too.
	lost := other.mustBind(other.keyed("k", 0, 10))
	other.close()
	r.wantState(lost, objects.StateLost)
	if got := u.mustBind(of(reg, "k", 0, 1000)); got != ino {
		t.Errorf("the key is object %d's, want %d", got, ino)
	}
	if _, err := r.store.Attr(r.ctx(), lost); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("the lost object: %v", err)
	}
	if blobs, err := r.store.GetXattr(r.ctx(), ino, "user.hmc.blobs"); err == nil {
		t.Errorf("one blob of a file is told as %q", blobs)
	}
}

// A file's content is read and written in place, and only in the requested range.
func TestFileAsMemory(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 4096)
	ino, reg := u.file("f", 2, 3000)
	u.mustBind(u.keyed("k", 100, 50, 2000, 50))
	if err := u.get(of(reg, "k", 10, 50, 1500, 50), false); err != nil {
		t.Fatal(err)
	}
	want := kit.Bytes(2, 0, 3000)
	copy(want[10:], kit.Bytes(1, 100, 50))
	copy(want[1500:], kit.Bytes(1, 2000, 50))
	f := r.open(ino)
	if i := kit.FirstDiff(r.read(f, 0, 4000), want); i >= 0 {
		t.Errorf("byte %d of the file is not as it should be", i)
	}
	// After a truncation only the rest is accessible, and the file does not grow.
	size := uint64(1520)
	if _, err := r.store.SetAttr(r.ctx(), ino, objects.Change{Size: &size}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "write behind the end", u.get(of(reg, "k", 10, 50, 1500, 50), false), devices.ErrRange)
	wantErr(t, "read behind the end", reg.Find(r.ctx(), 1500, 50), devices.ErrRange)
	wantErr(t, "read before it", reg.Find(r.ctx(), 1500, 20), nil)
	wantErr(t, "set it", u.bind(of(reg, "f", 0, 3000)), devices.ErrRange)
	if now := f.Size(); now != size {
		t.Errorf("the file has %d bytes, want %d", now, size)
	}
	r.close(f)
	if err := u.get(of(reg, "k", 0, 50, 50, 50), false); err != nil {
		t.Errorf("write in what is left: %v", err)
	}
	if err := r.store.Unlink(r.ctx(), r.root("sim1"), "f"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "write what is gone", u.get(of(reg, "k", 0, 50, 50, 50), false), objects.ErrLost)
	if err := reg.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "write what was let go", u.get(of(reg, "k", 0, 50, 50, 50), false), objects.ErrLost)
	if used := r.used("sim1"); used != 0 {
		t.Errorf("%v are used by nothing", used)
	}
}

// Only a user that may read and write a file can register it, and only if the file has
// bytes.
func TestRegisterFileRefuses(t *testing.T) {
	r := twoDevices(t)
	f := r.create("sim0", "f")
	defer r.close(f)
	empty := r.create("sim0", "empty")
	defer r.close(empty)
	r.write(f, 0, kit.Bytes(1, 0, 10))
	stranger, root := r.store.NewHolder(objects.Caller{UID: 4711}), r.store.NewHolder(objects.Caller{})
	defer func() {
		if err := errors.Join(stranger.Close(context.Background()), root.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}()
	_, err := stranger.RegisterFile(r.ctx(), f.Ino())
	wantErr(t, "a stranger", err, objects.ErrForbidden)
	_, err = root.RegisterFile(r.ctx(), r.root("sim0"))
	wantErr(t, "a directory", err, objects.ErrInvalid)
	_, err = root.RegisterFile(r.ctx(), empty.Ino())
	wantErr(t, "an empty file", err, objects.ErrInvalid)
	_, err = root.RegisterFile(r.ctx(), 1<<40)
	wantErr(t, "no file", err, metadata.ErrNotExist)
	u := r.user(0, 1, 100)
	ino := u.mustBind(u.keyed("k", 0, 100))
	u.close()
	_, err = root.RegisterFile(r.ctx(), ino)
	wantErr(t, "what is lost", err, objects.ErrLost)
}
