package metadata_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
)

func TestRootBelongsToHmcfs(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	file := f.touch(f.sim0, "file")
	_, err := f.Create(ctx, metadata.RootIno, "x", dirNode())
	fails(t, "Create in the root", err, metadata.ErrPermission)
	_, err = f.Create(ctx, metadata.RootIno, "sim0", dirNode())
	fails(t, "Create of a device's name", err, metadata.ErrExist)
	_, err = f.Rmdir(ctx, metadata.RootIno, "sim1")
	fails(t, "Rmdir of a device", err, metadata.ErrPermission)
	_, err = f.Unlink(ctx, metadata.RootIno, "sim1")
	fails(t, "Unlink of a device", err, metadata.ErrIsDir)
	_, err = f.Link(ctx, file, metadata.RootIno, "x")
	fails(t, "Link into the root", err, metadata.ErrCrossDevice)
	for _, r := range []metadata.Rename{
		{From: metadata.RootIno, Name: "sim1", To: metadata.RootIno, NewName: "sim9"},
		{From: metadata.RootIno, Name: "sim1", To: f.sim0, NewName: "x"},
		{From: f.sim0, Name: "file", To: metadata.RootIno, NewName: "x"},
		{From: metadata.RootIno, Name: "sim0", To: metadata.RootIno, NewName: "sim1", Flags: metadata.Exchange},
	} {
		_, err = f.Rename(ctx, r)
		fails(t, fmt.Sprintf("Rename %+v", r), err, metadata.ErrPermission)
	}
}

func TestDeadDirectory(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	dir, file := f.mkdir(f.sim0, "dir"), f.touch(f.sim0, "file")
	gone := f.must(f.Rmdir(ctx, f.sim0, "dir"))
	if gone.Nlink != 0 || gone.Ino != dir {
		t.Errorf("Rmdir answers %+v", gone)
	}
	_, err := f.Create(ctx, dir, "x", benchFile())
	fails(t, "Create", err, metadata.ErrNotExist)
	_, err = f.Link(ctx, file, dir, "x")
	fails(t, "Link", err, metadata.ErrNotExist)
	_, err = f.Lookup(ctx, dir, "x")
	fails(t, "Lookup", err, metadata.ErrNotExist)
	_, err = f.ReadDir(ctx, dir, 0, 10)
	fails(t, "ReadDir", err, metadata.ErrNotExist)
	_, err = f.Rename(ctx, metadata.Rename{From: f.sim0, Name: "file", To: dir, NewName: "x"})
	fails(t, "Rename", err, metadata.ErrNotExist)
	_, err = f.Create(ctx, file, "x", benchFile())
	fails(t, "Create in a file", err, metadata.ErrNotDir)
	_, err = f.Lookup(ctx, file, "x")
	fails(t, "Lookup in a file", err, metadata.ErrNotDir)
	_, err = f.ReadDir(ctx, file, 0, 10)
	fails(t, "ReadDir of a file", err, metadata.ErrNotDir)
}

func TestLinksAndPaths(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	a := f.mkdir(f.sim0, "a")
	b := f.mkdir(a, "b")
	ino := f.touch(b, "first")
	f.must(f.Link(ctx, ino, a, "second"))
	in := f.must(f.Link(ctx, ino, f.sim0, "third"))
	if in.Nlink != 3 {
		t.Errorf("three links count as %d", in.Nlink)
	}
	left := []string{"sim0/a/b/first", "sim0/a/second", "sim0/third"}
	path, err := f.PathOf(ctx, ino)
	if err != nil || path != left[0] {
		t.Errorf("PathOf = %q, %v", path, err)
	}
	for n := 3; n > 0; n-- {
		path, err = f.PathOf(ctx, ino)
		if err != nil || !slices.Contains(left, path) {
			t.Fatalf("with %d links PathOf = %q, %v, want one of %q", n, path, err, left)
		}
		left = slices.DeleteFunc(left, func(p string) bool { return p == path })
		in := f.must(f.Get(ctx, ino)) // its primary link is removed
		after := f.must(f.Unlink(ctx, in.Parent, in.Name))
		if after.Nlink != uint32(n-1) || !metadata.Timespec.After(after.Ctime, in.Ctime) {
			t.Errorf("Unlink answers %d links, ctime %v after %v", after.Nlink, after.Ctime, in.Ctime)
		}
	}
	_, err = f.Get(ctx, ino)
	fails(t, "Get after the last link", err, metadata.ErrNotExist)
	if path, err := f.PathOf(ctx, metadata.RootIno); path != "" || err != nil {
		t.Errorf("PathOf the root = %q, %v", path, err)
	}
	if path, err := f.PathOf(ctx, b); path != "sim0/a/b" || err != nil {
		t.Errorf("PathOf a directory = %q, %v", path, err)
	}
}

func TestRenameKeepsCookies(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for i := range 200 {
		f.touch(f.sim0, fmt.Sprint("f", i))
	}
	before := listAll(t, f.Store, f.sim0, 17)
	for i := 0; i < 200; i += 2 {
		r := metadata.Rename{From: f.sim0, Name: fmt.Sprint("f", i), To: f.sim0, NewName: fmt.Sprint("g", i)}
		if _, err := f.Rename(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	after := listAll(t, f.Store, f.sim0, 23)
	unchanged := func(e metadata.Entry) bool {
		var i int
		_, err := fmt.Sscanf(e.Name, "f%d", &i)
		return err != nil || i%2 == 0
	}
	before = slices.DeleteFunc(before, unchanged)
	after = slices.DeleteFunc(after, unchanged)
	if diff := cmp.Diff(before, after); diff != "" || len(after) != 100 {
		t.Errorf("entries that did not change are listed otherwise:\n%s", diff)
	}
}

// TestFullBucket makes all names collide, until no more fit.
func TestFullBucket(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	metadata.CollideNames(f.Store, func(string) uint64 { return 1 << 62 })
	name := func(i int) string { return fmt.Sprint("n", i) }
	for i := range 256 {
		f.touch(f.sim0, name(i))
	}
	_, err := f.Create(ctx, f.sim0, "one more", benchFile())
	fails(t, "Create in a full place", err, metadata.ErrFull)
	if n := len(listAll(t, f.Store, f.sim0, 7)); n != 256 {
		t.Errorf("%d entries are listed", n)
	}
	f.must(f.Unlink(ctx, f.sim0, name(0)))
	f.must(f.Unlink(ctx, f.sim0, name(100)))
	f.touch(f.sim0, "again 0")
	f.touch(f.sim0, "again 100")
	_, err = f.Create(ctx, f.sim0, "one more", benchFile())
	fails(t, "Create in a full place", err, metadata.ErrFull)
	for i := range 256 {
		_, err := f.Lookup(ctx, f.sim0, name(i))
		if gone := i == 0 || i == 100; gone != (err != nil) {
			t.Errorf("Lookup %d = %v", i, err)
		}
	}
	metadata.RemoveBelow(t, f.Store, f.sim0)
	if text := dump(t, f.kv); strings.Count(text, "\n64") != 2 {
		t.Errorf("entries, or tombstones, are left over:\n%s", text)
	}
}

func TestMoveDevice(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	file, old := f.touch(f.sim0, "file"), f.touch(f.sim1, "taken")
	f.must(f.SaveContent(ctx, file, nil, bigMappings(5)))
	f.must(f.SaveContent(ctx, old, nil, bigMappings(2)))
	f.ok(f.SetXattr(ctx, file, "user.x", []byte("kept"), 0))
	f.ok(f.BindKey(ctx, file, "key"))
	f.ok(f.BindKey(ctx, old, "old"))
	r := metadata.Rename{From: f.sim0, Name: "file", To: f.sim1, NewName: "taken"}
	_, err := f.Rename(ctx, r)
	fails(t, "Rename across devices", err, metadata.ErrCrossDevice)
	maps := []metadata.Mapping{
		{FileOff: 64, Len: 64, Device: "sim1", Epoch: 9, Allocation: 5, Pinned: true},
		{FileOff: 0, Len: 64, Device: "sim1", Epoch: 9, Allocation: 4},
	}
	_, err = f.MoveDevice(ctx, r, "sim0", 9, maps)
	fails(t, "MoveDevice to a directory of another device", err, metadata.ErrInvalid)
	_, err = f.MoveDevice(ctx, r, "sim1", 9, append(maps, metadata.Mapping{FileOff: 10, Len: 1}))
	fails(t, "MoveDevice with mappings that overlap", err, metadata.ErrInvalid)
	res, err := f.MoveDevice(ctx, r, "sim1", 9, maps)
	if err != nil {
		t.Fatal(err)
	}
	if res.Moved.Ino != file || res.Moved.Device != "sim1" || res.Moved.Epoch != 9 || res.Moved.Allocated != 128 ||
		res.Replaced == nil || res.Replaced.Ino != old || res.Replaced.Nlink != 0 {
		t.Errorf("MoveDevice = %+v", res)
	}
	got, err := f.Mappings(ctx, file)
	if diff := cmp.Diff([]metadata.Mapping{maps[1], maps[0]}, got); diff != "" || err != nil {
		t.Errorf("mappings after the move (%v):\n%s", err, diff)
	}
	if value, xerr := f.GetXattr(ctx, file, "user.x"); string(value) != "kept" || xerr != nil {
		t.Errorf("the attribute is %q, %v", value, xerr)
	}
	if ino, kerr := f.KeyIno(ctx, "key"); ino != file || kerr != nil {
		t.Errorf("the key names %d, %v", ino, kerr)
	}
	_, err = f.KeyIno(ctx, "old")
	fails(t, "KeyIno of what was replaced", err, metadata.ErrNotExist)
}

func TestUnlinkRemovesRecords(t *testing.T) {
	for _, batch := range []int{2048, 7} {
		f := newFixture(t)
		ctx := t.Context()
		metadata.SetPurgeBatch(f.Store, batch)
		before := dump(t, f.kv)
		ino := f.touch(f.sim0, "file")
		f.must(f.SaveContent(ctx, ino, nil, bigMappings(50)))
		f.ok(f.BindKey(ctx, ino, "key"))
		for i := range 30 {
			f.ok(f.SetXattr(ctx, ino, fmt.Sprint("user.", i), make([]byte, i), 0))
		}
		f.must(f.Unlink(ctx, f.sim0, "file"))
		// Everything but the directory's times is unchanged.
		count := strings.Count(dump(t, f.kv), "\n")
		if want := strings.Count(before, "\n"); count != want {
			t.Errorf("batch %d: %d records are left, want %d", batch, count, want)
		}
	}
}
