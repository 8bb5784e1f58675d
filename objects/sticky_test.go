package objects_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// TestSticky removes and moves names of a sticky directory as one of its users.
func TestSticky(t *testing.T) {
	r := newRig(t, small(false), small(true))
	me := objects.Caller{UID: 1001, Groups: []uint32{}}
	make := func(name string, mode metadata.Mode, uid uint32) metadata.Ino {
		t.Helper()
		dir := r.root("sim0")
		if in, err := r.store.Lookup(r.ctx(), dir, "tmp"); err == nil {
			dir = in.Ino
		}
		a, err := r.store.Create(r.ctx(), dir, name, metadata.Node{Mode: mode, UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		return a.Ino
	}
	dir := make("tmp", metadata.TypeDir|0o1777, 0)
	for _, name := range []string{"mine", "own"} {
		make(name, metadata.TypeRegular|0o666, me.UID)
	}
	make("theirs", metadata.TypeRegular|0o666, 1002)
	make("their dir", metadata.TypeDir|0o777, 1002)
	rename := func(from string, to metadata.Ino, name string, flags metadata.RenameFlags) error {
		return r.store.RenameAs(r.ctx(), me, metadata.Rename{From: dir, Name: from, To: to, NewName: name, Flags: flags})
	}
	for what, err := range map[string]error{
		"remove":              r.store.UnlinkAs(r.ctx(), me, dir, "theirs"),
		"remove a directory":  r.store.RmdirAs(r.ctx(), me, dir, "their dir"),
		"move":                rename("theirs", dir, "taken", 0),
		"move, no replace":    rename("theirs", dir, "taken", metadata.NoReplace),
		"move to a device":    rename("theirs", r.root("sim1"), "taken", 0),
		"publish":             rename("theirs", metadata.PublishIno, "taken", 0),
		"replace":             rename("mine", dir, "theirs", 0),
		"exchange":            rename("mine", dir, "theirs", metadata.Exchange),
		"exchange from there": rename("theirs", dir, "mine", metadata.Exchange),
	} {
		if !errors.Is(err, objects.ErrForbidden) {
			t.Errorf("%s: %v, want ErrForbidden", what, err)
		}
	}
	if err := rename("mine", dir, "theirs", metadata.NoReplace); !errors.Is(err, metadata.ErrExist) {
		t.Errorf("move over an existing name: %v, want ErrExist", err)
	}
	for _, err := range []error{
		rename("mine", dir, "own", 0), rename("own", r.root("sim1"), "f", 0),
		r.store.UnlinkAs(r.ctx(), objects.Caller{UID: 1002}, dir, "theirs"),
		r.store.RmdirAs(r.ctx(), objects.Caller{UID: 1002}, dir, "their dir"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestRenameToTakenName creates the new name of a rename after the rename has found it free.
func TestRenameToTakenName(t *testing.T) {
	r := newRig(t, small(false))
	make := func(dir metadata.Ino, name string, mode metadata.Mode, uid uint32) metadata.Ino {
		t.Helper()
		a, err := r.store.Create(r.ctx(), dir, name, metadata.Node{Mode: mode, UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		return a.Ino
	}
	dir := make(r.root("sim0"), "tmp", metadata.TypeDir|0o1777, 0)
	mine := make(dir, "mine", metadata.TypeRegular|0o666, 1001)
	for _, c := range []struct {
		who  uint32
		want error
	}{{1001, objects.ErrForbidden}, {0, nil}} {
		var theirs metadata.Ino
		rename := metadata.Rename{From: dir, Name: "mine", To: dir, NewName: "new"}
		err := r.store.RenameAfter(r.ctx(), objects.Caller{UID: c.who}, rename, func() {
			if theirs == 0 {
				theirs = make(dir, "new", metadata.TypeRegular|0o666, 1002)
			}
		})
		if !errors.Is(err, c.want) {
			t.Errorf("user %d: %v, want %v", c.who, err, c.want)
		}
		now, err := r.store.Lookup(r.ctx(), dir, "new")
		want := theirs
		if c.want == nil {
			want = mine
		}
		if err != nil || now.Ino != want {
			t.Errorf("user %d: the name is inode %d (%v), want %d", c.who, now.Ino, err, want)
		}
		if err = r.store.Unlink(r.ctx(), dir, "new"); err != nil {
			t.Fatal(err)
		}
	}
}
