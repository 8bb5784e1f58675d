package cluster_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// tree is a device's directory of b, as a sees it.
type tree struct {
	t    *testing.T
	w    *clustertest.World
	b    *cluster.Node
	who  objects.Caller
	root objects.Ino
}

func newTree(t *testing.T, o clustertest.Options) *tree {
	t.Helper()
	w := clustertest.New(t, o)
	return &tree{t: t, w: w, b: w.Peer("a", "b"), root: w.Node("b").Dir("host")}
}

func (r *tree) make(dir objects.Ino, name string, mode metadata.Mode) objects.Attr {
	r.t.Helper()
	a, err := r.b.Create(r.t.Context(), r.who, dir, name, metadata.Node{Mode: mode})
	if err != nil {
		r.t.Fatalf("make %s: %v", name, err)
	}
	return a
}

func (r *tree) lookup(dir objects.Ino, name string) objects.Attr {
	r.t.Helper()
	a, err := r.b.Lookup(r.t.Context(), r.who, dir, name)
	if err != nil {
		r.t.Fatalf("look for %s: %v", name, err)
	}
	return a
}

// want fails the test unless err is the error want.
func (r *tree) want(err, want error, what string) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Errorf("%s: %v, not %v", what, err, want)
	}
}

// TestNames creates, links, moves and removes names of another node, and sees each change at
// once, even if the previous state is cached.
func TestNames(t *testing.T) {
	kit.Check(t)
	r := newTree(t, clustertest.Options{Change: longTTL})
	ctx := t.Context()
	dir := r.make(r.root, "d", metadata.TypeDir|0o755)
	file := r.make(dir.Ino, "f", metadata.TypeRegular|0o640)
	if got := r.lookup(dir.Ino, "f"); got.Ino != file.Ino || got.Mode != metadata.TypeRegular|0o640 || got.Nlink != 1 {
		t.Errorf("made: %+v", got)
	}
	link, err := r.b.Create(ctx, r.who, dir.Ino, "s", metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: "../x"})
	if err != nil || link.Target != "../x" {
		t.Errorf("a symlink: %+v, %v", link, err)
	}
	if a, failure := r.b.Link(ctx, r.who, file.Ino, r.root, "g"); failure != nil || a.Nlink != 2 {
		t.Errorf("a link: %+v, %v", a, failure)
	}
	if got := r.lookup(dir.Ino, "f"); got.Nlink != 2 {
		t.Errorf("linked: %+v", got)
	}
	r.want(r.b.Rmdir(ctx, r.who, r.root, "d"), metadata.ErrNotEmpty, "remove a directory with entries")
	r.want(r.b.Unlink(ctx, r.who, r.root, "d"), metadata.ErrIsDir, "unlink a directory")
	_, err = r.b.Create(ctx, r.who, r.root, "g", metadata.Node{Mode: metadata.TypeRegular | 0o600})
	r.want(err, metadata.ErrExist, "make what is there")
	if err = r.b.Rename(ctx, r.who, metadata.Rename{From: dir.Ino, Name: "f", To: r.root, NewName: "h"}); err != nil {
		t.Fatal(err)
	}
	_, err = r.b.Lookup(ctx, r.who, dir.Ino, "f")
	r.want(err, metadata.ErrNotExist, "the old name")
	if got := r.lookup(r.root, "h"); got.Ino != file.Ino {
		t.Errorf("the new name: %+v", got)
	}
	if err = r.b.Unlink(ctx, r.who, r.root, "g"); err != nil {
		t.Fatal(err)
	}
	if got := r.lookup(r.root, "h"); got.Nlink != 1 {
		t.Errorf("unlinked: %+v", got)
	}
	if err = errors.Join(r.b.Unlink(ctx, r.who, dir.Ino, "s"), r.b.Rmdir(ctx, r.who, r.root, "d")); err != nil {
		t.Fatal(err)
	}
	_, err = r.b.Lookup(ctx, r.who, r.root, "d")
	r.want(err, metadata.ErrNotExist, "the removed directory")
	list, err := r.b.OpenDir(r.who, r.root).After(ctx, 0)
	if err != nil || len(list) != 1 || list[0].Name != "h" {
		t.Errorf("what is left: %+v, %v", list, err)
	}
}

// TestNamesGone sends requests for an open file, or a directory, by number right after its
// name was removed: the creator of a file has never looked up its name.
func TestNamesGone(t *testing.T) {
	kit.Check(t)
	r := newTree(t, clustertest.Options{Change: longTTL})
	ctx := t.Context()
	links := func(what string, ino objects.Ino, want uint32) {
		t.Helper()
		if a, err := r.b.Attr(ctx, r.who, ino); err != nil || a.Nlink != want {
			t.Fatalf("%s: %d names of inode %d, %v; want %d", what, a.Nlink, ino, err, want)
		}
	}
	for range kit.Rounds(100, 300, 1000) {
		var inos []objects.Ino
		for _, name := range []string{"f", "g"} {
			a, f, err := r.b.CreateOpen(ctx, r.who, r.root, name, metadata.Node{Mode: metadata.TypeRegular | 0o644}, objects.PermWrite)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close(context.WithoutCancel(ctx)) }()
			links("made", a.Ino, 1)
			inos = append(inos, a.Ino)
		}
		if err := r.b.Rename(ctx, r.who, metadata.Rename{From: r.root, Name: "f", To: r.root, NewName: "g"}); err != nil {
			t.Fatal(err)
		}
		links("replaced", inos[1], 0)
		links("moved", inos[0], 1)
		if err := r.b.Unlink(ctx, r.who, r.root, "g"); err != nil {
			t.Fatal(err)
		}
		links("removed", inos[0], 0)
	}
}

func longTTL(_ members.Name, o *cluster.Options) { o.AttrTTL = time.Minute }

// TestAttributes changes attributes, and truncates with the permission of a handle.
func TestAttributes(t *testing.T) {
	kit.Check(t)
	r := newTree(t, clustertest.Options{Change: longTTL})
	ctx := t.Context()
	file := r.make(r.root, "f", metadata.TypeRegular|0o644)
	mode, uid, size := metadata.Mode(0o600), uint32(1234), uint64(100)
	stamp := metadata.Timespec{Sec: 12, Nsec: 34}
	for _, c := range []objects.Change{{Mode: &mode}, {UID: &uid}, {Mtime: &stamp}} {
		if _, err := r.b.SetAttr(ctx, r.who, file.Ino, c, nil); err != nil {
			t.Fatal(err)
		}
	}
	a, err := r.b.Attr(ctx, r.who, file.Ino)
	if err != nil || a.Mode != metadata.TypeRegular|0o600 || a.UID != uid || a.Mtime != stamp {
		t.Errorf("changed: %+v, %v", a, err)
	}
	f := open(t, r.b, file.Ino)
	version := f.Version()
	if a, err = r.b.SetAttr(ctx, r.who, file.Ino, objects.Change{Size: &size}, f); err != nil || a.Size != size {
		t.Errorf("cut: %+v, %v", a, err)
	}
	if f.Size() != size || f.Version() == version {
		t.Errorf("size %d, version %d", f.Size(), f.Version())
	}
	if err = f.Allocate(ctx, objects.AllocateExtend, 0, 8192); err != nil || f.Size() != 8192 {
		t.Errorf("allocate: size %d, %v", f.Size(), err)
	}
	if err = f.Sync(ctx); err != nil {
		t.Error(err)
	}
	if _, err = f.Seek(ctx, 9000, objects.SeekData); !errors.Is(err, objects.ErrNoData) {
		t.Errorf("seek behind the end: %v", err)
	}
	if off, failure := f.Seek(ctx, 0, objects.SeekHole); failure != nil || off > 8192 {
		t.Errorf("seek: %d, %v", off, failure)
	}
}

// TestXattrs sets, reads, lists and removes extended attributes.
func TestXattrs(t *testing.T) {
	kit.Check(t)
	r := newTree(t, clustertest.Options{})
	ctx := t.Context()
	file := r.make(r.root, "f", metadata.TypeRegular|0o644)
	x := objects.Xattr{Name: "user.mine", Value: []byte("v\x00w"), Flags: metadata.XattrCreate}
	if err := r.b.SetXattr(ctx, r.who, file.Ino, x); err != nil {
		t.Fatal(err)
	}
	r.want(r.b.SetXattr(ctx, r.who, file.Ino, x), metadata.ErrExist, "set it again")
	if v, err := r.b.GetXattr(ctx, r.who, file.Ino, "user.mine"); err != nil || string(v) != "v\x00w" {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := r.b.GetXattr(ctx, r.who, file.Ino, "user.hmc.device"); err != nil || string(v) != "host" {
		t.Errorf("%q, %v", v, err)
	}
	if names, err := r.b.ListXattr(ctx, r.who, file.Ino); err != nil || !slices.Contains(names, "user.mine") {
		t.Errorf("%q, %v", names, err)
	}
	if err := r.b.RemoveXattr(ctx, r.who, file.Ino, "user.mine"); err != nil {
		t.Error(err)
	}
	_, err := r.b.GetXattr(ctx, r.who, file.Ino, "user.mine")
	r.want(err, metadata.ErrNoXattr, "what was removed")
}

// TestRemoteStatFS requests the use of the device behind a directory.
func TestRemoteStatFS(t *testing.T) {
	kit.Check(t)
	r := newTree(t, clustertest.Options{})
	u, err := r.b.StatFS(t.Context(), r.who, r.w.Node("b").Dir("sim0"))
	if err != nil || u.Total != 64<<20 {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestPushed makes a see changes at b long before its cache would expire.
func TestPushed(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}, Change: longTTL})
	ctx, root := t.Context(), clustertest.Root()
	ino := w.Node("b").File("host", "f", []byte("old"))
	dir := w.Node("b").Dir("host")
	byA, byC := w.Peer("a", "b"), w.Peer("c", "b")
	f := open(t, byA, ino)
	if a, err := byA.Lookup(ctx, root, dir, "f"); err != nil || a.Size != 3 {
		t.Fatal(a, err)
	}
	version := f.Version()
	if n, err := open(t, byC, ino).WriteAt(ctx, []byte("newer"), objects.Write{}); err != nil || n != 5 {
		t.Fatal(n, err)
	}
	kit.Eventually(t, 10*time.Second, func() bool {
		a, err := byA.Lookup(ctx, root, dir, "f")
		return err == nil && a.Size == 5 && f.Version() != version
	})
	if err := byC.Unlink(ctx, root, dir, "f"); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, 10*time.Second, func() bool {
		_, err := byA.Lookup(ctx, root, dir, "f")
		return errors.Is(err, metadata.ErrNotExist)
	})
	// Open files continue to work.
	if got := read(t, f, 10); string(got) != "newer" {
		t.Errorf("read %q", got)
	}
}

// TestUsersApart does not answer one user from what is cached for another one.
func TestUsersApart(t *testing.T) {
	kit.Check(t)
	r := newTree(t, clustertest.Options{Change: longTTL})
	ctx := t.Context()
	dir := r.make(r.root, "d", metadata.TypeDir|0o700)
	r.make(dir.Ino, "f", metadata.TypeRegular|0o600)
	r.lookup(dir.Ino, "f")
	_, err := r.b.Lookup(ctx, objects.Caller{UID: 1000, GID: 1000}, dir.Ino, "f")
	r.want(err, cluster.ErrDenied, "look into another user's directory")
}
