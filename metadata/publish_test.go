package metadata_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

// TestPublishAndReceive follows a file into publish/ and out of it.
func TestPublishAndReceive(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	ino := f.touch(f.sim0, "t")
	f.ok(f.BindKey(ctx, ino, "key"))
	in := f.must(f.Publish(ctx, f.sim0, "t", "p"))
	if in.Ino != ino || in.Device != "sim0" || in.Parent != metadata.PublishIno || in.Name != "p" || in.Key != "" {
		t.Errorf("published as %+v", in)
	}
	_, err := f.KeyIno(ctx, "key")
	fails(t, "the key of what is published", err, metadata.ErrNotExist)
	path, err := f.PathOf(ctx, ino)
	if f.ok(err); path != "publish/p" {
		t.Errorf("path %q", path)
	}
	entries, err := f.ReadDir(ctx, metadata.PublishIno, 0, 10)
	if err != nil || len(entries) != 1 || entries[0].Ino != ino || entries[0].Name != "p" {
		t.Errorf("publish/ lists %v, %v", entries, err)
	}
	_, err = f.Lookup(ctx, metadata.RootIno, "publish")
	fails(t, "publish/ by name", err, metadata.ErrNotExist)

	r := metadata.Rename{From: metadata.PublishIno, Name: "p", To: f.sim1, NewName: "r"}
	_, err = f.Rename(ctx, r)
	fails(t, "receive on another device by rename", err, metadata.ErrCrossDevice)
	moved, err := f.MoveDevice(ctx, r, "sim1", 7, nil)
	f.ok(err)
	if moved.Moved.Device != "sim1" || moved.Moved.Parent != f.sim1 || moved.Moved.Taken {
		t.Errorf("received as %+v", moved.Moved)
	}
	f.must(f.Publish(ctx, f.sim1, "r", "p"))
	r.NewName = "again"
	back, err := f.Rename(ctx, r)
	f.ok(err)
	if in = f.must(f.Lookup(ctx, f.sim1, "again")); in != back.Moved || in.Ino != ino || in.Device != "sim1" {
		t.Errorf("received by rename as %+v", in)
	}
	if dir := f.must(f.Get(ctx, metadata.PublishIno)); dir.Size != 0 || dir.Nlink != 2 || dir.Device != "" {
		t.Errorf("publish/ is %+v", dir)
	}
}

// TestPublishTakesKeys refuses names by which the file could never be requested.
func TestPublishTakesKeys(t *testing.T) {
	f := newFixture(t)
	f.touch(f.sim0, "t")
	for _, name := range []string{"a b", "a&b", "ü"} {
		_, err := f.Publish(t.Context(), f.sim0, "t", name)
		fails(t, name, err, metadata.ErrInvalidKey)
	}
	f.must(f.Publish(t.Context(), f.sim0, "t", "-_!@#%^*()+=:;."))
}

func TestPublishRefuses(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	const publish = metadata.PublishIno
	dir := f.mkdir(f.sim0, "dir")
	file, linked := f.touch(f.sim0, "file"), f.touch(f.sim0, "linked")
	f.must(f.Link(ctx, linked, f.sim0, "link"))
	f.must(f.Create(ctx, f.sim0, "symlink", metadata.Node{Mode: metadata.TypeSymlink, Target: "x"}))
	f.touch(f.sim0, "p")
	pub := f.must(f.Publish(ctx, f.sim0, "p", "p"))
	f.touch(f.sim0, "q")
	f.must(f.Publish(ctx, f.sim0, "q", "q"))

	publishes := []struct {
		parent        metadata.Ino
		name, newName string
		want          error
	}{
		{f.sim0, "absent", "new", metadata.ErrNotExist},
		{f.sim0, "file", "p", metadata.ErrExist},
		{f.sim0, "dir", "new", metadata.ErrIsDir},
		{f.sim0, "symlink", "new", metadata.ErrInvalid},
		{f.sim0, "linked", "new", metadata.ErrTooManyLinks},
		{f.sim0, "file", "a/b", metadata.ErrInvalidName},
		{metadata.RootIno, "sim0", "new", metadata.ErrPermission},
		{publish, "p", "new", metadata.ErrPermission},
		{file, "p", "new", metadata.ErrNotDir},
	}
	for _, c := range publishes {
		_, err := f.Publish(ctx, c.parent, c.name, c.newName)
		fails(t, "publish "+c.name, err, c.want)
	}
	renames := []struct {
		from    metadata.Ino
		name    string
		to      metadata.Ino
		newName string
		flags   metadata.RenameFlags
		want    error
	}{
		{f.sim0, "file", publish, "new", 0, metadata.ErrPermission},
		{f.sim0, "file", publish, "p", 0, metadata.ErrPermission},
		{f.sim0, "dir", publish, "new", 0, metadata.ErrPermission},
		{publish, "p", publish, "new", 0, metadata.ErrPermission},
		{publish, "p", f.sim0, "file", metadata.Exchange, metadata.ErrInvalid},
		{f.sim0, "file", publish, "p", metadata.Exchange, metadata.ErrInvalid},
		{publish, "p", publish, "q", metadata.Exchange, metadata.ErrInvalid},
		{publish, "p", f.sim0, "file", metadata.NoReplace, metadata.ErrExist},
		{publish, "p", metadata.RootIno, "new", 0, metadata.ErrPermission},
		{publish, "p", f.sim0, "dir", 0, metadata.ErrIsDir},
		{publish, "p", f.sim1, "new", 0, metadata.ErrCrossDevice},
	}
	for _, c := range renames {
		_, err := f.Rename(ctx, metadata.Rename{From: c.from, Name: c.name, To: c.to, NewName: c.newName, Flags: c.flags})
		fails(t, "rename "+c.name+" to "+c.newName, err, c.want)
	}
	_, err := f.MoveDevice(ctx, metadata.Rename{From: f.sim0, Name: "file", To: publish, NewName: "n"}, "", 0, nil)
	fails(t, "move to publish/", err, metadata.ErrPermission)
	_, err = f.Create(ctx, publish, "new", benchFile())
	fails(t, "create in publish/", err, metadata.ErrPermission)
	_, err = f.Link(ctx, file, publish, "new")
	fails(t, "link into publish/", err, metadata.ErrPermission)
	_, err = f.Link(ctx, pub.Ino, dir, "new")
	fails(t, "link of a publication", err, metadata.ErrPermission)
	_, err = f.EnsureDevice(ctx, "publish", 0, 0, 0)
	fails(t, "device publish", err, metadata.ErrInvalidName)
}

// TestTake takes a file once; then it can only be removed.
func TestTake(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	ino := f.touch(f.sim0, "t")
	fails(t, "take outside of publish/", f.Take(ctx, ino), metadata.ErrNotExist)
	fails(t, "take nothing", f.Take(ctx, ino+100), metadata.ErrNotExist)
	fails(t, "take publish/", f.Take(ctx, metadata.PublishIno), metadata.ErrNotExist)
	f.must(f.Publish(ctx, f.sim0, "t", "p"))
	f.ok(f.Take(ctx, ino))
	fails(t, "take it again", f.Take(ctx, ino), metadata.ErrNotExist)
	if in := f.must(f.Get(ctx, ino)); !in.Taken {
		t.Errorf("taken: %+v", in)
	}
	r := metadata.Rename{From: metadata.PublishIno, Name: "p", To: f.sim0, NewName: "t"}
	_, err := f.Rename(ctx, r)
	fails(t, "rename of what is taken", err, metadata.ErrNotExist)
	_, err = f.MoveDevice(ctx, r, "sim0", 0, nil)
	fails(t, "move of what is taken", err, metadata.ErrNotExist)
	if gone := f.must(f.Unlink(ctx, metadata.PublishIno, "p")); gone.Nlink != 0 {
		t.Errorf("%d links are left", gone.Nlink)
	}
}

// TestReceiveBoundMemory moves a file bound to its publisher's memory out of publish/: the
// received file has memory of its own.
func TestReceiveBoundMemory(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	files := f.newFiles(1, func(_ int, n *metadata.NewFile) { n.Device, n.Binding = "sim0", []byte("owner") })
	f.put(metadata.PublishIno, files...)
	ino := files[0].Ino
	fails(t, "a key in publish/", f.BindKey(ctx, ino, "key"), metadata.ErrPermission)
	r := metadata.Rename{From: metadata.PublishIno, Name: files[0].Name, To: f.sim0, NewName: "mine"}
	res, err := f.MoveDevice(ctx, r, "sim0", 3, bigMappings(1))
	f.ok(err)
	if res.Moved.Bound != metadata.Unbound || res.Moved.Device != "sim0" || res.Moved.Epoch != 3 {
		t.Errorf("received as %+v", res.Moved)
	}
	if bound, err := f.Bindings(ctx); err != nil || len(bound) != 0 {
		t.Errorf("bindings %v, %v", bound, err)
	}
	f.ok(f.BindKey(ctx, ino, "key"))
	gone := f.must(f.Unlink(ctx, f.sim0, "mine"))
	if gone.Nlink != 0 || gone.Key != "key" || gone.Parent != f.sim0 || gone.Name != "mine" {
		t.Errorf("what is gone says %+v", gone)
	}
}

// TestPublishDirectory gives publish/ the mode and owner of its mount.
func TestPublishDirectory(t *testing.T) {
	f := newFixture(t)
	in, err := f.Update(t.Context(), metadata.PublishIno, func(in *metadata.Inode) error {
		in.Mode, in.UID, in.GID = metadata.TypeDir|0o1777, 5, 6
		return nil
	})
	if f.must(in, err); in.Mode != metadata.TypeDir|0o1777 || in.UID != 5 || in.GID != 6 {
		t.Errorf("publish/ is %+v", in)
	}
	if path, err := f.PathOf(t.Context(), in.Ino); err != nil || path != "publish" {
		t.Errorf("path %q, %v", path, err)
	}
}

// TestEnsureDir creates a directory once, by whichever caller.
func TestEnsureDir(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	made := f.must(f.EnsureDir(ctx, f.sim0, ".keys", metadata.Node{Mode: 0o700, UID: 3}))
	again := f.must(f.EnsureDir(ctx, f.sim0, ".keys", metadata.Node{Mode: 0o755}))
	if made.Mode != metadata.TypeDir|0o700 || made.UID != 3 || again != made {
		t.Errorf("made %+v, then %+v", made, again)
	}
	file := f.touch(f.sim0, "file")
	_, err := f.EnsureDir(ctx, f.sim0, "file", metadata.Node{})
	fails(t, "a file's name", err, metadata.ErrNotDir)
	_, err = f.EnsureDir(ctx, file, "sub", metadata.Node{})
	fails(t, "in a file", err, metadata.ErrNotDir)
	_, err = f.EnsureDir(ctx, metadata.RootIno, "sub", metadata.Node{})
	fails(t, "in the root", err, metadata.ErrPermission)
	_, err = f.EnsureDir(ctx, f.sim0+1000, "sub", metadata.Node{})
	fails(t, "in nothing", err, metadata.ErrNotExist)
}
