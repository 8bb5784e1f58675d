package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// problems returns the problems that Check finds.
func problems(t *testing.T, s *Store) []Problem {
	t.Helper()
	var found []Problem
	if err := s.Check(t.Context(), func(p Problem) { found = append(found, p) }); err != nil {
		t.Fatalf("Check: %v", err)
	}
	return found
}

func kinds(found []Problem) string {
	var names []string
	for _, p := range found {
		names = append(names, p.Kind.String())
	}
	slices.Sort(names)
	return strings.Join(names, "; ")
}

// TestCheckAndRepair damages a tree in every known way, and has Check find the damage and
// Repair fix it, until nothing is found any more.
func TestCheckAndRepair(t *testing.T) {
	seen := map[ProblemKind]bool{}
	for _, test := range damages() {
		t.Run(test.name, func(t *testing.T) {
			d := newDamaged(t)
			if err := d.s.update(t.Context(), func(tx *txn) error { return test.do(d, tx) }); err != nil {
				t.Fatal(err)
			}
			found := problems(t, d.s)
			if got := kinds(found); got != test.want {
				t.Errorf("Check finds\n%s\nwant\n%s", got, test.want)
			}
			for round := 0; len(found) > 0; round++ {
				if round > 10 {
					t.Fatalf("after %d rounds of repair there is still %v", round, found)
				}
				for _, p := range found {
					seen[p.Kind] = true
				}
				repair(t, d.s, found)
				found = problems(t, d.s)
			}
			useWhole(t, d.s)
		})
	}
	for kind := CorruptRecord; kind <= WrongTaken; kind++ {
		if !seen[kind] {
			t.Errorf("no damage leads to %q", kind)
		}
	}
}

// repair fixes problems, or finds that they are gone.
func repair(t *testing.T, s *Store, found []Problem) {
	t.Helper()
	for _, p := range found {
		if p.Remedy() == "" {
			t.Errorf("nobody is told what is done about %v", p)
		}
		if err := s.Repair(t.Context(), p); err != nil && !errors.Is(err, ErrChanged) {
			t.Fatalf("Repair: %v", err)
		}
	}
}

// useWhole walks the whole tree by names and removes it.
func useWhole(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	err := s.Walk(ctx, func(in Inode) error {
		path, err := s.PathOf(ctx, in.Ino)
		if err != nil {
			return fmt.Errorf("path of %d: %w", in.Ino, err)
		}
		at := RootIno
		for name := range strings.SplitSeq(path, "/") {
			switch {
			case name == "":
				continue
			case at == RootIno && name == publishName:
				at = PublishIno
				continue
			}
			found, err := s.Lookup(ctx, at, name)
			if err != nil {
				return fmt.Errorf("%q in %s: %w", name, path, err)
			}
			at = found.Ino
		}
		if at != in.Ino {
			return fmt.Errorf("path %s leads to %d, not to %d", path, at, in.Ino)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"sim0", "sim1"} {
		dev, err := s.Lookup(ctx, RootIno, name)
		if err != nil {
			t.Fatal(err)
		}
		RemoveBelow(t, s, dev.Ino)
	}
	RemoveBelow(t, s, PublishIno)
	if found := problems(t, s); len(found) > 0 {
		t.Errorf("after the removal of all: %v", found)
	}
	left := 0
	if err := s.Walk(ctx, func(Inode) error { left++; return nil }); err != nil || left != 4 {
		t.Errorf("%d inodes are left (%v), want the root, publish/ and two devices", left, err)
	}
}

func TestRepairKeepsContent(t *testing.T) {
	d := newDamaged(t)
	err := d.s.update(t.Context(), func(tx *txn) error {
		return errors.Join(d.dropEntry(tx, d.dir.Ino, "file"), d.dropEntry(tx, d.dev.Ino, "link"))
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		repair(t, d.s, problems(t, d.s))
	}
	in, err := d.s.Lookup(t.Context(), d.dir.Ino, "file")
	if err != nil || in.Ino != d.file.Ino || in.Nlink != 1 || in.Key != "key" {
		t.Fatalf("the orphan came back as %+v, %v", in, err)
	}
	maps, err := d.s.Mappings(t.Context(), in.Ino)
	if err != nil || len(maps) != 2 || maps[1].FileOff != 9 {
		t.Errorf("its mappings are %v, %v", maps, err)
	}
}

func TestRepairStale(t *testing.T) {
	for _, test := range damages() {
		d := newDamaged(t)
		if err := d.s.update(t.Context(), func(tx *txn) error { return test.do(d, tx) }); err != nil {
			t.Fatal(err)
		}
		found := problems(t, d.s)
		sound := newDamaged(t) // the same problems do not exist there
		for _, p := range found {
			err := sound.s.Repair(t.Context(), p)
			if err != nil && !errors.Is(err, ErrChanged) {
				t.Errorf("%s: stale repair of %v: %v", test.name, p, err)
			}
			if rest := problems(t, sound.s); len(rest) > 0 {
				t.Errorf("%s: stale repair of %v does damage: %v", test.name, p, rest)
				break
			}
		}
	}
	s := newMapStore(t)
	if err := s.Repair(context.Background(), Problem{Kind: 99}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Repair of an unknown kind = %v", err)
	}
}
