package metadata_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

func (f *fixture) fileOf(uid uint32, name string) metadata.Ino {
	f.t.Helper()
	return f.must(f.Create(f.t.Context(), f.sim0, name, metadata.Node{Mode: metadata.TypeRegular | 0o644, UID: uid})).Ino
}

// limited reopens the store of a fixture with limits.
func (f *fixture) limited(l metadata.Limits) {
	f.t.Helper()
	var err error
	f.Store, err = metadata.Open(f.t.Context(), f.kv, metadata.Options{Now: f.clock.now, Limits: l})
	f.ok(err)
}

// refusals returns how often a limit has refused something.
func (f *fixture) refusals(name string) uint64 {
	for _, l := range f.Limits() {
		if l.Name == name {
			return l.Refused
		}
	}
	f.t.Fatalf("no limit %s", name)
	return 0
}

func TestUserNames(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.limited(metadata.Limits{UserNames: 3})
	a := f.fileOf(7, "a")
	f.fileOf(7, "b")
	if _, err := f.Link(ctx, a, f.sim0, "a2"); err != nil {
		t.Fatal(err)
	}
	_, err := f.Create(ctx, f.sim0, "c", metadata.Node{Mode: metadata.TypeDir | 0o755, UID: 7})
	fails(t, "a fourth name", err, metadata.ErrQuota)
	_, err = f.Link(ctx, a, f.sim0, "a3")
	fails(t, "a fourth link", err, metadata.ErrQuota)
	inos, err := f.NewInos(ctx, 2)
	f.ok(err)
	put := func(ino metadata.Ino, name string) error {
		results, perr := f.Put(ctx, f.sim0, []metadata.NewFile{
			{Ino: ino, Name: name, Node: metadata.Node{Mode: metadata.TypeRegular, UID: 7}, Replace: true},
		})
		f.ok(perr)
		return results[0].Err
	}
	fails(t, "a fourth file by Put", put(inos[0], "d"), metadata.ErrQuota)
	f.ok(put(inos[1], "b"))
	if n := f.refusals("user-names"); n != 3 {
		t.Errorf("%d refusals, want 3", n)
	}
	for i := range 5 {
		f.fileOf(0, fmt.Sprint("root", i))
	}
	f.fileOf(8, "other")
	if _, err = f.Unlink(ctx, f.sim0, "a2"); err != nil {
		t.Fatal(err)
	}
	f.fileOf(7, "d")
}

func TestXattrSpace(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.limited(metadata.Limits{InodeXattrs: 3, InodeXattrBytes: 100, UserXattrBytes: 150})
	a, b := f.fileOf(7, "a"), f.fileOf(7, "b")
	set := func(ino metadata.Ino, name string, n int) error {
		return f.SetXattr(ctx, ino, name, make([]byte, n), 0)
	}
	f.ok(set(a, "1", 98))
	fails(t, "a byte too many", set(a, "2", 1), metadata.ErrXattrSpace)
	fails(t, "a larger one", set(a, "1", 100), metadata.ErrXattrSpace)
	f.ok(set(a, "1", 10))
	f.ok(set(a, "2", 0))
	f.ok(set(a, "3", 0))
	fails(t, "a fourth", set(a, "4", 0), metadata.ErrXattrSpace)
	f.ok(set(a, "3", 86))
	fails(t, "more than the user may", set(b, "1", 51), metadata.ErrQuota)
	f.ok(set(b, "1", 48))
	f.ok(f.RemoveXattr(ctx, a, "3"))
	f.ok(set(b, "2", 10))
	root := f.fileOf(0, "root")
	f.ok(set(root, "1", 99))
	fails(t, "a byte too many of root's", set(root, "2", 1), metadata.ErrXattrSpace)
	for name, want := range map[string]uint64{"inode-xattrs": 1, "inode-xattr-bytes": 3, "user-xattr-bytes": 1} {
		if n := f.refusals(name); n != want {
			t.Errorf("%s: %d refusals, want %d", name, n, want)
		}
	}
}

// TestUsageFollows runs random operations that change a user's usage, and compares the
// counts with those that the next Open computes from the records.
func TestUsageFollows(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	r := rand.New(rand.NewPCG(1, 2))
	name := func() string { return fmt.Sprint(r.IntN(20)) }
	uid := func() uint32 { return uint32(r.IntN(3)) }
	var held []metadata.Ino
	ino := func() metadata.Ino {
		in, err := f.Lookup(ctx, f.sim0, name())
		if err != nil {
			return f.sim1
		}
		return in.Ino
	}
	some := []func(){
		func() {
			typ := []metadata.Mode{metadata.TypeRegular, metadata.TypeDir, metadata.TypeFIFO}[r.IntN(3)]
			_, _ = f.Create(ctx, f.sim0, name(), metadata.Node{Mode: typ | 0o644, UID: uid()})
		},
		func() { _, _ = f.Link(ctx, ino(), f.sim0, name()) },
		func() { _, _ = f.Unlink(ctx, f.sim0, name()) },
		func() { _, _ = f.Rmdir(ctx, f.sim0, name()) },
		func() {
			_, _ = f.Rename(ctx, metadata.Rename{
				From: f.sim0, Name: name(), To: f.sim0, NewName: name(), Flags: metadata.RenameFlags(r.IntN(3)),
			})
		},
		func() { _ = f.SetXattr(ctx, ino(), "user."+name(), make([]byte, r.IntN(50)), 0) },
		func() { _ = f.RemoveXattr(ctx, ino(), "user."+name()) },
		func() {
			_, _ = f.Update(ctx, ino(), func(in *metadata.Inode) error {
				in.UID = uid()
				return nil
			})
		},
		func() {
			in := ino()
			f.HoldXattrs(in)
			held = append(held, in)
		},
		func() {
			inos, err := f.NewInos(ctx, 1)
			f.ok(err)
			_, _ = f.Put(ctx, f.sim0, []metadata.NewFile{{
				Ino: inos[0], Name: name(), Node: metadata.Node{Mode: metadata.TypeRegular, UID: uid()}, Replace: true,
				Xattrs: map[string][]byte{"user.put": make([]byte, r.IntN(50))},
			}})
		},
	}
	for range 40 {
		for range 50 {
			some[r.IntN(len(some))]()
		}
		for _, in := range held {
			f.ok(f.ReleaseXattrs(ctx, in))
		}
		held = held[:0]
		var was [3]metadata.Usage
		for i := range was {
			was[i] = f.Usage(uint32(i))
		}
		f.limited(metadata.Limits{})
		for i := range was {
			if now := f.Usage(uint32(i)); now != was[i] {
				t.Fatalf("user %d: counted %+v, in the records %+v", i, was[i], now)
			}
		}
	}
	if f.Usage(1).Names == 0 || f.Usage(2).XattrBytes == 0 {
		t.Error("nothing was counted")
	}
}
