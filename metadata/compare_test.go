package metadata_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
)

// checkClean fails the test if Check finds anything.
func checkClean(t *testing.T, s *metadata.Store) {
	t.Helper()
	err := s.Check(t.Context(), func(p metadata.Problem) { t.Errorf("Check: %v", p) })
	if err != nil {
		t.Errorf("Check: %v", err)
	}
}

// listAll lists a directory with varying limits.
func listAll(t *testing.T, s *metadata.Store, dir metadata.Ino, limit int) []metadata.Entry {
	t.Helper()
	var all []metadata.Entry
	var after metadata.Cookie
	for {
		entries, err := s.ReadDir(t.Context(), dir, after, limit)
		if err != nil {
			t.Fatalf("ReadDir: %v", err)
		}
		for _, e := range entries {
			if e.Cookie <= after || e.Cookie < 2 || e.Cookie>>63 != 0 {
				t.Fatalf("cookie %#x after %#x", e.Cookie, after)
			}
			after = e.Cookie
		}
		all = append(all, entries...)
		if len(entries) < limit {
			return all
		}
	}
}

// compare compares the whole store with the whole model.
func (x *randomRun) compare() {
	x.t.Helper()
	checkClean(x.t, x.s)
	for _, ino := range x.inos {
		if ino >= x.s.NextIno() {
			x.t.Errorf("inode %d was given, but the next one is %d", ino, x.s.NextIno())
		}
		if x.m.nodes[ino] == nil {
			if _, err := x.s.Get(x.t.Context(), ino); !errors.Is(err, metadata.ErrNotExist) {
				x.t.Errorf("inode %d is gone, but Get = %v", ino, err)
			}
		}
	}
	var walked []metadata.Ino
	err := x.s.Walk(x.t.Context(), func(in metadata.Inode) error {
		walked = append(walked, in.Ino)
		return nil
	})
	if want := slices.Sorted(maps.Keys(x.m.nodes)); err != nil || !slices.Equal(walked, want) {
		x.t.Errorf("Walk finds %v (%v), want %v", walked, err, want)
	}
	for _, ino := range walked {
		x.compareNode(ino)
	}
	x.compareKeys()
	x.compareExpired()
	if x.t.Failed() {
		for _, line := range x.log[max(0, len(x.log)-60):] {
			x.t.Log(line)
		}
		x.t.FailNow()
	}
}

func (x *randomRun) compareNode(ino metadata.Ino) {
	x.t.Helper()
	ctx := x.t.Context()
	n := x.m.nodes[ino]
	if n == nil {
		return
	}
	in, err := x.s.Get(ctx, ino)
	if err != nil {
		x.t.Errorf("Get %d: %v", ino, err)
		return
	}
	want := n.in
	want.Gen = x.s.Generation()
	want.Parent, want.Name = in.Parent, in.Name
	if diff := cmp.Diff(want, in); diff != "" {
		x.t.Errorf("inode %d differs (-model +store):\n%s", ino, diff)
	}
	if parent := x.m.nodes[in.Parent]; n != x.m.root && n != x.m.publish && (parent == nil || parent.children[in.Name] != n) {
		x.t.Errorf("inode %d says that it is %q in %d", ino, in.Name, in.Parent)
	}
	x.comparePath(ino, n)
	maps, err := x.s.Mappings(ctx, ino)
	if err != nil || !slices.Equal(maps, n.maps) {
		x.t.Errorf("mappings of %d are %v (%v), want %v", ino, maps, err, n.maps)
	}
	x.compareXattrs(ino, n)
	if n.children != nil {
		x.compareDir(ino, n)
	}
}

func (x *randomRun) compareXattrs(ino metadata.Ino, n *modelNode) {
	x.t.Helper()
	names, err := x.s.ListXattr(x.t.Context(), ino)
	if err != nil || !slices.Equal(names, slices.Sorted(maps.Keys(n.xattrs))) {
		x.t.Errorf("attributes of %d are %v (%v), want %v", ino, names, err, n.xattrs)
	}
	for _, name := range names {
		value, err := x.s.GetXattr(x.t.Context(), ino, name)
		if err != nil || string(value) != n.xattrs[name] {
			x.t.Errorf("%s of %d is %q (%v), want %q", name, ino, value, err, n.xattrs[name])
		}
	}
}

func (x *randomRun) compareDir(ino metadata.Ino, n *modelNode) {
	x.t.Helper()
	got := map[string]metadata.Ino{}
	for _, e := range listAll(x.t, x.s, ino, 1+x.r.IntN(5)) {
		if got[e.Name] != 0 {
			x.t.Errorf("directory %d lists %q twice", ino, e.Name)
		}
		got[e.Name] = e.Ino
		if c := n.children[e.Name]; c != nil && c.in.Mode.Type() != e.Type {
			x.t.Errorf("directory %d lists %q as %o", ino, e.Name, e.Type)
		}
	}
	want := map[string]metadata.Ino{}
	for name, c := range n.children {
		want[name] = c.in.Ino
		in, err := x.s.Lookup(x.t.Context(), ino, name)
		if err != nil || in.Ino != c.in.Ino {
			x.t.Errorf("Lookup %d/%s = %d, %v, want %d", ino, name, in.Ino, err, c.in.Ino)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("directory %d differs (-model +store):\n%s", ino, diff)
	}
	if _, err := x.s.Lookup(x.t.Context(), ino, "absent"); !errors.Is(err, metadata.ErrNotExist) {
		x.t.Errorf("Lookup of an absent name = %v", err)
	}
}

// comparePath follows a path through the model.
func (x *randomRun) comparePath(ino metadata.Ino, n *modelNode) {
	x.t.Helper()
	path, err := x.s.PathOf(x.t.Context(), ino)
	at := x.m.root
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case at == x.m.root && name == "publish":
			at = x.m.publish
		case name != "" && at != nil:
			at = at.children[name]
		}
	}
	if err != nil || at != n {
		x.t.Errorf("path of %d is %q, %v", ino, path, err)
	}
}

func (x *randomRun) compareKeys() {
	x.t.Helper()
	want := x.m.keys()
	got := map[string]metadata.Ino{}
	for after, more := "", true; more; {
		keys, err := x.s.Keys(x.t.Context(), after, 2)
		if err != nil {
			x.t.Fatal(err)
		}
		for _, k := range keys {
			got[k.Key] = k.Ino
			after = k.Key
			if ino, err := x.s.KeyIno(x.t.Context(), k.Key); err != nil || ino != k.Ino {
				x.t.Errorf("KeyIno %q = %d, %v, want %d", k.Key, ino, err, k.Ino)
			}
		}
		more = len(keys) == 2
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("keys differ (-model +store):\n%s", diff)
	}
}
