package metadata_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestClockSetBack opens a store a year before it was written: the names exist and can be
// changed, new ones are created, and files expire at their time.
func TestClockSetBack(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(2_000_000_000, 0)
	reopen := func() *metadata.Store {
		kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		s, err := metadata.Open(t.Context(), kv, metadata.Options{Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	shut := func(s *metadata.Store) {
		checkStore(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	file := metadata.Node{Mode: metadata.TypeRegular | 0o644}

	s := reopen()
	root, err := s.EnsureDevice(t.Context(), "sim0", 0o755, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Create(t.Context(), root.Ino, "old", file)
	if err != nil {
		t.Fatal(err)
	}
	end := metadata.TimespecOf(now.Add(time.Hour))
	if err = s.Expire(t.Context(), old.Ino, end); err != nil {
		t.Fatal(err)
	}
	shut(s)

	now = now.AddDate(-1, 0, 0)
	s = reopen()
	over, next, err := s.Expired(t.Context(), s.Now(), 0)
	if len(over) > 0 || next != end || err != nil {
		t.Errorf("%v are over, the next at %v, %v; want none, the next at %v", over, next, err, end)
	}
	fresh, err := s.Create(t.Context(), root.Ino, "new", file)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Ino == old.Ino || fresh.Ctime != metadata.TimespecOf(now) {
		t.Errorf("the new file has number %d and time %v, the old one number %d; the clock says %v", fresh.Ino, fresh.Ctime, old.Ino, now)
	}
	if _, err = s.Unlink(t.Context(), root.Ino, "new"); err != nil {
		t.Error(err)
	}
	shut(s)

	now = now.AddDate(1, 0, 1)
	s = reopen()
	if over, _, err = s.Expired(t.Context(), s.Now(), 0); !slices.Equal(over, []metadata.Ino{old.Ino}) || err != nil {
		t.Errorf("when the clock is right again %v are over, %v; want %d", over, err, old.Ino)
	}
	shut(s)
}
