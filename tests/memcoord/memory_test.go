package memcoord_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/tests/conformance/coordtest"
	"github.com/hmcfs/hmcfs/tests/memcoord"
)

func TestConformance(t *testing.T) {
	coordtest.Run(t, func(*testing.T) func() coord.Service {
		s := memcoord.NewServer(memcoord.Options{})
		return func() coord.Service { return s.Client() }
	})
}

// leased returns a client with one value under a lease of ten seconds.
func leased(t *testing.T, s *memcoord.Server) (*memcoord.Client, coord.Lease) {
	t.Helper()
	c := s.Client()
	l, err := c.Grant(t.Context(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	results, err := c.Create(t.Context(), []coord.Entry{{Name: "x"}}, l)
	if err != nil || results[0].Err != nil {
		t.Fatal(results, err)
	}
	return c, l
}

func lost(l coord.Lease) bool {
	synctest.Wait()
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// after checks the state of a lease some time later.
func after(t *testing.T, d time.Duration, s *memcoord.Server, l coord.Lease, wantLost bool, wantValues int) {
	t.Helper()
	pass(d)
	if got := lost(l); got != wantLost {
		t.Errorf("lost %v, want %v", got, wantLost)
	}
	if got := s.Stats().Values; got != wantValues {
		t.Errorf("%d values, want %d", got, wantValues)
	}
}

func TestLeaseTimes(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, s *memcoord.Server, c *memcoord.Client, l coord.Lease){
		"kept": func(t *testing.T, s *memcoord.Server, _ *memcoord.Client, l coord.Lease) {
			after(t, time.Hour, s, l, false, 1)
		},
		"cut": func(t *testing.T, s *memcoord.Server, c *memcoord.Client, l coord.Lease) {
			c.SetCut(true)
			after(t, 9*time.Second, s, l, false, 1)
			after(t, 2*time.Second, s, l, true, 0)
		},
		"cut and healed in time": func(t *testing.T, s *memcoord.Server, c *memcoord.Client, l coord.Lease) {
			c.SetCut(true)
			after(t, 9*time.Second, s, l, false, 1)
			c.SetCut(false)
			after(t, time.Hour, s, l, false, 1)
		},
		"down, with the whole time afterwards": func(t *testing.T, s *memcoord.Server, _ *memcoord.Client, l coord.Lease) {
			s.SetDown(true)
			after(t, 11*time.Second, s, l, true, 1)
			s.SetDown(false)
			after(t, 9*time.Second, s, l, true, 1)
			after(t, 2*time.Second, s, l, true, 0)
		},
		"down for a short time": func(t *testing.T, s *memcoord.Server, _ *memcoord.Client, l coord.Lease) {
			s.SetDown(true)
			after(t, 9*time.Second, s, l, false, 1)
			s.SetDown(false)
			after(t, time.Hour, s, l, false, 1)
		},
		"closed": func(t *testing.T, s *memcoord.Server, c *memcoord.Client, l coord.Lease) {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			after(t, 9*time.Second, s, l, false, 1)
			after(t, 2*time.Second, s, l, true, 0)
		},
		"killed": func(t *testing.T, s *memcoord.Server, c *memcoord.Client, l coord.Lease) {
			c.Kill()
			after(t, 0, s, l, true, 0)
		},
		"wiped": func(t *testing.T, s *memcoord.Server, _ *memcoord.Client, l coord.Lease) {
			s.Wipe()
			after(t, 0, s, l, true, 0)
		},
		"wiped while down": func(t *testing.T, s *memcoord.Server, _ *memcoord.Client, l coord.Lease) {
			s.SetDown(true)
			s.Wipe()
			after(t, 0, s, l, false, 0)
			s.SetDown(false)
			after(t, 0, s, l, true, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memcoord.NewServer(memcoord.Options{})
				c, l := leased(t, s)
				test(t, s, c, l)
				c.Kill()
				if st := s.Stats(); st.Leases != 0 {
					t.Errorf("%d leases left", st.Leases)
				}
			})
		})
	}
}

func TestHistory(t *testing.T) {
	const history = 10
	s := memcoord.NewServer(memcoord.Options{History: history})
	c := s.Client()
	make10 := func() {
		for range history {
			if _, err := c.Create(t.Context(), []coord.Entry{{Name: "x"}}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Delete(t.Context(), []coord.Entry{{Name: "x"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	slow, err := c.Watch(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	make10()
	if _, err = c.Watch(t.Context(), "", 0); err != nil {
		t.Errorf("within the history: %v", err)
	}
	make10()
	make10()
	if _, err = c.Watch(t.Context(), "", 0); !errors.Is(err, coord.ErrCompacted) {
		t.Errorf("behind the history: %v", err)
	}
	if _, err = slow.Next(t.Context()); !errors.Is(err, coord.ErrCompacted) {
		t.Errorf("a slow watch: %v", err)
	}
	s.Compact()
	_, revision, err := c.List(t.Context(), "", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Watch(t.Context(), "", revision); err != nil {
		t.Errorf("behind the last change: %v", err)
	}
	if _, err = c.Watch(t.Context(), "", revision-1); !errors.Is(err, coord.ErrCompacted) {
		t.Errorf("behind the one before, compacted: %v", err)
	}
}

func TestFailures(t *testing.T) {
	s := memcoord.NewServer(memcoord.Options{})
	c := s.Client()
	w, err := c.Watch(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.SetDown(true)
	if _, err = w.Next(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("watch: %v", err)
	}
	if _, err = c.Get(t.Context(), "x"); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("down: %v", err)
	}
	s.SetDown(false)
	s.SetDenied(true)
	if _, err = c.Get(t.Context(), "x"); !errors.Is(err, coord.ErrDenied) {
		t.Errorf("denied: %v", err)
	}
	s.SetDenied(false)
	c.SetCut(true)
	if _, err = c.Get(t.Context(), "x"); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("cut: %v", err)
	}
	if _, err = s.Client().Get(t.Context(), "x"); !errors.Is(err, coord.ErrNotFound) {
		t.Errorf("another client: %v", err)
	}
}

// pass waits for a duration, which takes no real time in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
