package cluster_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRootIsNobodyElsewhere: by default root of one node is mapped to nobody on another.
func TestRootIsNobodyElsewhere(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) {
		o.Squash = cluster.Squash{}
	}})
	ctx, root, b := t.Context(), clustertest.Root(), w.Peer("a", "b")
	store, top := w.Node("b").Store, w.Node("b").Dir("sim0") // mode 0777
	made, err := b.Create(ctx, root, top, "by root", metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if err != nil || made.UID != 65534 || made.GID != 65534 {
		t.Errorf("a file of root's: %d:%d, %v", made.UID, made.GID, err)
	}
	private, err := store.Create(ctx, top, "private", metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.Open(ctx, root, private.Ino, objects.PermRead); !errors.Is(err, cluster.ErrDenied) {
		t.Errorf("open what is root's alone: %v", err)
	}
	if _, err = b.SetAttr(ctx, root, private.Ino, objects.Change{Mode: new(metadata.Mode(0o666))}, nil); !errors.Is(err, objects.ErrForbidden) {
		t.Errorf("change what is root's alone: %v", err)
	}
	user := objects.Caller{UID: 4100, GID: 4100}
	if made, err = b.Create(ctx, user, top, "by a user", metadata.Node{Mode: metadata.TypeRegular | 0o600}); err != nil || made.UID != 4100 {
		t.Errorf("a file of a user's: %d, %v", made.UID, err)
	}
	if _, err = b.Open(ctx, root, made.Ino, objects.PermRead); !errors.Is(err, cluster.ErrDenied) {
		t.Errorf("root opens what is a user's: %v", err)
	}
}

// TestOnlyTheOwnerOfTheMount: without --allow-other no other user has access from other nodes,
// not even to names.
func TestOnlyTheOwnerOfTheMount(t *testing.T) {
	kit.Check(t)
	const mounting = 4100
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) {
		o.Owner = new(uint32(mounting))
	}})
	ctx, b := t.Context(), w.Peer("a", "b")
	top := w.Node("b").Dir("sim0")
	for _, who := range []objects.Caller{{}, {UID: 4200, GID: mounting}} {
		if _, err := b.Lookup(ctx, who, metadata.RootIno, "sim0"); !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("user %d looks up: %v", who.UID, err)
		}
		if _, err := b.Attr(ctx, who, top); !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("user %d asks for attributes: %v", who.UID, err)
		}
		if _, err := b.OpenDir(who, metadata.RootIno).After(ctx, 0); !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("user %d lists: %v", who.UID, err)
		}
		if _, err := b.StatFS(ctx, who, metadata.RootIno); !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("user %d asks for room: %v", who.UID, err)
		}
	}
	owner := objects.Caller{UID: mounting, GID: 4100}
	if _, err := b.Lookup(ctx, owner, metadata.RootIno, "sim0"); err != nil {
		t.Errorf("the owner: %v", err)
	}
	// The owner has been answered, and other users still are not: not from the cache either.
	if _, err := b.Lookup(ctx, objects.Caller{UID: 4200}, metadata.RootIno, "sim0"); !errors.Is(err, cluster.ErrDenied) {
		t.Errorf("another after the owner: %v", err)
	}
}

// TestChangesOfTheOwnerAreSeenAtOnce: with a cache lifetime of an hour, changes by the owner
// are visible once the owner has sent its notice.
func TestChangesOfTheOwnerAreSeenAtOnce(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) { o.AttrTTL = time.Hour }})
	ctx, root, a, b := t.Context(), clustertest.Root(), w.Node("a").Cluster, w.Peer("a", "b")
	store, top := w.Node("b").Store, w.Node("b").Dir("sim0")
	file, err := store.Create(ctx, top, "f", metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		t.Log(what)
		kit.Eventually(t, 5*time.Second, holds)
	}
	look := func() (objects.Attr, error) { return b.Lookup(ctx, root, top, "f") }
	if _, err = look(); err != nil {
		t.Fatal(err)
	}
	asked := a.Stats().Questions
	if _, err = look(); err != nil || a.Stats().Questions != asked {
		t.Fatalf("it is not remembered: %v", err)
	}
	if _, err = store.SetAttr(ctx, file.Ino, objects.Change{Mode: new(metadata.Mode(0o600))}); err != nil {
		t.Fatal(err)
	}
	eventually("another mode", func() bool { got, failure := look(); return failure == nil && got.Mode.Perm() == 0o600 })
	f, err := store.OpenFile(ctx, file.Ino)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteAt(ctx, []byte("hello"), objects.Write{}); err != nil {
		t.Fatal(err)
	}
	eventually("another size", func() bool { got, failure := look(); return failure == nil && got.Size == 5 })
	if err = f.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err = store.Rename(ctx, metadata.Rename{From: top, Name: "f", To: top, NewName: "g"}); err != nil {
		t.Fatal(err)
	}
	eventually("another name", func() bool { _, failure := look(); return errors.Is(failure, metadata.ErrNotExist) })
	if err = store.Unlink(ctx, top, "g"); err != nil {
		t.Fatal(err)
	}
	eventually("gone", func() bool { _, failure := b.Attr(ctx, root, file.Ino); return errors.Is(failure, cluster.ErrStale) })
	if w.Node("b").Cluster.Stats().InvalidationsOut == 0 || a.Stats().InvalidationsIn == 0 {
		t.Errorf("%+v", a.Stats())
	}
}
