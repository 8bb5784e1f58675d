package metadata

import "testing"

// RemoveBelow removes everything below a directory.
func RemoveBelow(t testing.TB, s *Store, dir Ino) {
	t.Helper()
	ctx := t.Context()
	entries, err := s.ReadDir(ctx, dir, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		remove := s.Unlink
		if e.Type == TypeDir {
			RemoveBelow(t, s, e.Ino)
			remove = s.Rmdir
		}
		if _, err := remove(ctx, dir, e.Name); err != nil {
			t.Fatalf("remove %q from %d: %v", e.Name, dir, err)
		}
	}
}
