package metadata

import (
	"errors"
	"slices"
	"testing"
)

// TestRestored repairs restored records that lack their first ones: no inode number is
// assigned again, and all names are where they were.
func TestRestored(t *testing.T) {
	for _, test := range []struct {
		name string
		lose []byte // a key
		gone []string
	}{
		{"nothing", []byte{kindExpiry}, nil},
		{"inode counter", []byte{kindAlloc}, nil},
		{"root", appendKey(nil, kindInode, uint64(RootIno)), []string{goneRoot}},
		{"first record", []byte{kindSuper}, []string{goneSuper}},
		{"publish directory", appendKey(nil, kindInode, uint64(PublishIno)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := t.Context()
			d := newDamaged(t)
			before, generation := d.s.NextIno(), d.s.Generation()
			err := d.s.kv.Update(ctx, func(tx KVTxn) error { return tx.Delete(test.lose) })
			if err != nil {
				t.Fatal(err)
			}
			gone, err := Repair(ctx, d.s.kv)
			if err != nil || !slices.Equal(gone, test.gone) {
				t.Fatalf("Repair = %q, %v, want %q", gone, err, test.gone)
			}
			s, err := Open(ctx, d.s.kv, Options{})
			if err != nil {
				t.Fatal(err)
			}
			repairAll(t, s)
			if s.Generation() != generation {
				t.Errorf("the generation is %x, and was %x: host memory is refused", s.Generation(), generation)
			}
			if s.NextIno() < before+skipInos-inoBatch {
				t.Errorf("the next inode is %d, after %d", s.NextIno(), before)
			}
			for _, in := range []Inode{d.dev, d.dir, d.sub, d.deep, d.file, d.other, d.pub} {
				isAt(t, s, in)
			}
		})
	}
}

// repairAll repairs until no problem is left, and fails the test if one remains. A repair
// may uncover another problem.
func repairAll(t *testing.T, s *Store) {
	t.Helper()
	for range 10 {
		for _, p := range problems(t, s) {
			if err := s.Repair(t.Context(), p); err != nil && !errors.Is(err, ErrChanged) {
				t.Error(err)
			}
		}
	}
	if left := problems(t, s); len(left) > 0 {
		t.Errorf("problems are left: %v", left)
	}
}

// isAt fails the test unless an inode still has its name, and is found by it.
func isAt(t *testing.T, s *Store, in Inode) {
	t.Helper()
	got, err := s.Get(t.Context(), in.Ino)
	if err != nil || got.Name != in.Name || got.Parent != in.Parent {
		t.Errorf("inode %d is %q in %d, %v, want %q in %d", in.Ino, got.Name, got.Parent, err, in.Name, in.Parent)
		return
	}
	found, err := s.Lookup(t.Context(), in.Parent, in.Name)
	if err != nil || found.Ino != in.Ino {
		t.Errorf("%q is inode %d, %v, want %d", in.Name, found.Ino, err, in.Ino)
	}
}
