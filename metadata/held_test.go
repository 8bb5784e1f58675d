package metadata_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// TestNameless opens the records of processes that died while inodes without names were
// held.
func TestNameless(t *testing.T) {
	ctx, kv := t.Context(), memkv.New()
	open := func(keep bool) *metadata.Store {
		t.Helper()
		s, err := metadata.Open(ctx, kv, metadata.Options{KeepNameless: keep})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open(true)
	inos := holdSome(t, s)
	used := s.Usage(7)
	for range 2 {
		s = open(true)
		held := s.Nameless()
		if len(held) != 2 || held[inos[0]].Mode.Perm() != 0o640 || held[inos[1]].Nlink != 0 || held[inos[1]].Device != "sim0" {
			t.Fatalf("held %+v", held)
		}
		if v, err := s.GetXattr(ctx, inos[1], "user.a"); err != nil || string(v) != "value" {
			t.Errorf("attribute %q, %v", v, err)
		}
		if now := s.Usage(7); now != used {
			t.Errorf("usage %+v, before %+v", now, used)
		}
	}
	if err := s.ReleaseXattrs(ctx, inos[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetXattr(ctx, inos[1], "user.a"); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("attribute of a released inode: %v", err)
	}
	if s = open(true); len(s.Nameless()) != 1 {
		t.Errorf("held %+v", s.Nameless())
	}
	if s = open(false); len(s.Nameless()) != 0 {
		t.Errorf("held %+v", s.Nameless())
	}
	if s = open(true); len(s.Nameless()) != 0 {
		t.Errorf("held after a start that releases all: %+v", s.Nameless())
	}
	checkStore(t, s)
}

// holdSome removes the last names of three files, of which the first two are held: one
// without and one with an attribute.
func holdSome(t *testing.T, s *metadata.Store) (inos []metadata.Ino) {
	t.Helper()
	ctx := t.Context()
	dir, err := s.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "attributes", "free"} {
		in, err := s.Create(ctx, dir.Ino, name, metadata.Node{Mode: metadata.TypeRegular | 0o640, UID: 7})
		if err == nil && name == "attributes" {
			err = s.SetXattr(ctx, in.Ino, "user.a", []byte("value"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if name != "free" {
			s.HoldXattrs(in.Ino)
		}
		if _, err = s.Unlink(ctx, dir.Ino, name); err != nil {
			t.Fatal(err)
		}
		inos = append(inos, in.Ino)
	}
	return inos
}

// TestHoldAgain changes inodes that are held: the process that follows sees the change, and the new owner is charged for the attributes.
func TestHoldAgain(t *testing.T) {
	ctx, kv := t.Context(), memkv.New()
	s, err := metadata.Open(ctx, kv, metadata.Options{KeepNameless: true})
	if err != nil {
		t.Fatal(err)
	}
	inos, used := holdSome(t, s), s.Usage(7)
	for _, in := range []metadata.Inode{
		{Ino: inos[0], Mode: metadata.TypeRegular | 0o600, UID: 7},
		{Ino: inos[1], Mode: metadata.TypeRegular | 0o600, UID: 8, Size: 1},
	} {
		if err = s.HoldNameless(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if s.Usage(7) != (metadata.Usage{Names: used.Names}) || s.Usage(8) != (metadata.Usage{XattrBytes: used.XattrBytes}) || used.XattrBytes == 0 {
			t.Errorf("usage %+v and %+v, before %+v", s.Usage(7), s.Usage(8), used)
		}
		if s, err = metadata.Open(ctx, kv, metadata.Options{KeepNameless: true}); err != nil {
			t.Fatal(err)
		}
	}
	if held := s.Nameless(); held[inos[0]].Mode.Perm() != 0o600 || held[inos[1]].UID != 8 || held[inos[1]].Size != 0 || held[inos[1]].Device != "sim0" {
		t.Errorf("held %+v", held)
	}
	checkStore(t, s)
}
