package members_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/memcoord"
)

// node is a member with its connection to the service, and the events it has received.
type node struct {
	*members.Members
	client *memcoord.Client

	mu     sync.Mutex
	events []members.Event
}

// record returns the record of one of a test's nodes.
func record(name string) members.Record {
	return members.Record{
		Name:      members.Name(name),
		Addresses: []string{name + ":7070"},
		ID:        "id-" + name,
		Devices:   []members.Device{{Name: "sim0", Total: 1 << 20}},
	}
}

// join makes a node join, which leaves at the end of the test.
func join(t *testing.T, s *memcoord.Server, self members.Record) *node {
	t.Helper()
	n := &node{client: s.Client()}
	var err error
	n.Members, err = members.Join(t.Context(), members.Options{Service: n.client, Self: self})
	if err != nil {
		t.Fatalf("%s joins: %v", self.Name, err)
	}
	cancel := n.OnEvent(func(ev members.Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.events = append(n.events, ev)
	})
	t.Cleanup(func() {
		cancel()
		leave(t, n.Members)
	})
	return n
}

func leave(t *testing.T, m *members.Members) {
	t.Helper()
	err := m.Close(context.WithoutCancel(t.Context()))
	if err != nil && !errors.Is(err, coord.ErrClosed) && !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("close: %v", err)
	}
}

// names returns the names in a view.
func names(v members.View) []string {
	out := []string{}
	for _, r := range v.Nodes() {
		out = append(out, string(r.Name))
	}
	return out
}

// sees fails the test unless a view shows exactly these nodes.
func sees(t *testing.T, v members.View, want ...string) {
	t.Helper()
	synctest.Wait()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, names(v)); diff != "" {
		t.Errorf("%s sees (-want +got):\n%s", v.Self().Name, diff)
	}
}

// kinds returns the events that a node has received, as text, and clears them.
func (n *node) kinds() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	words := map[members.Kind]string{members.Joined: "joined", members.Changed: "changed", members.Left: "left"}
	out := []string{}
	for _, ev := range n.events {
		out = append(out, words[ev.Kind]+" "+string(ev.Record.Name))
	}
	n.events = nil
	return out
}

func TestJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a := join(t, s, record("a"))
		b := join(t, s, record("b"))
		sees(t, a, "b")
		sees(t, b, "a")
		if r, ok := a.ByRank(members.Name("b").Rank()); !ok || r.Addresses[0] != "b:7070" || r.Epoch != b.Self().Epoch {
			t.Errorf("b by rank: %+v, %v", r, ok)
		}
		leave(t, b.Members)
		sees(t, a)
		if diff := cmp.Diff([]string{"joined b", "left b"}, a.kinds()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if st := s.Stats(); st.Values != 2 || st.Leases != 1 {
			t.Errorf("left in the service: %+v", st)
		}
	})
}

// TestDeath cuts a node off for longer than its lease: it is shown as lapsed, with the
// time, by all nodes, including one that joins meanwhile, until it is back.
func TestDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, record("a")), join(t, s, record("b"))
		before := b.Self().Epoch
		b.client.SetCut(true)
		pass(members.DefaultTTL - time.Millisecond)
		lapsed(t, a, "b", false)
		pass(2 * time.Millisecond)
		lapsed(t, a, "b", true)
		c := join(t, s, record("c"))
		lapsed(t, c, "b", true)
		a.told(t, "joined b", "changed b", "joined c")
		pass(24 * time.Hour)
		again := join(t, s, record("b"))
		lapsed(t, a, "b", false)
		lapsed(t, c, "b", false)
		a.told(t, "left b", "joined b")
		if again.Self().Epoch <= before {
			t.Errorf("epoch %d after %d", again.Self().Epoch, before)
		}
	})
}

// TestDeathUnseen is TestDeath for a node that has to list all nodes again: the lease ended
// while that node itself was cut off.
func TestDeathUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b, c := join(t, s, record("a")), join(t, s, record("b")), join(t, s, record("c"))
		a.client.SetCut(true)
		c.client.Kill()
		pass(time.Hour)
		lapsed(t, a, "c", false)
		s.Compact()
		a.client.SetCut(false)
		pass(time.Minute)
		lapsed(t, a, "c", true)
		lapsed(t, b, "c", true)
		lapsed(t, a, "b", false)
	})
}

// TestForget has an operator decide that a dead node does not come back.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b, c := join(t, s, record("a")), join(t, s, record("b")), join(t, s, record("c"))
		if err := a.Forget(t.Context(), "b"); !errors.Is(err, members.ErrPresent) {
			t.Errorf("a node that is there: %v", err)
		}
		if err := a.Forget(t.Context(), "x"); !errors.Is(err, coord.ErrNotFound) {
			t.Errorf("a node that never was: %v", err)
		}
		b.client.SetCut(true)
		pass(2 * members.DefaultTTL)
		c.client.SetCut(true)
		if err := a.Forget(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		sees(t, a, "c")
		s.Compact() // c has to list all nodes, since it has missed the events
		c.client.SetCut(false)
		pass(time.Second)
		sees(t, c, "a")
		b.client.SetCut(false)
		pass(time.Minute)
		lapsed(t, a, "b", false)
		sees(t, c, "a", "b")
	})
}

// lapsed fails the test unless a view shows a node, lapsed or not as wanted.
func lapsed(t *testing.T, v members.View, name members.Name, want bool) {
	t.Helper()
	synctest.Wait()
	r, known := v.Get(name)
	if !known || r.Lapsed.IsZero() == want {
		t.Errorf("%s knows of %s: %t, %+v; want lapsed: %t", v.Self().Name, name, known, r, want)
	}
}

func TestKilledNodeComesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a := join(t, s, record("a"))
		b := join(t, s, record("b"))
		old := b.Self()
		b.client.Close() //nolint:errcheck // killed: its lease remains
		again := join(t, s, old)
		if again.Self().Epoch <= old.Epoch {
			t.Errorf("epoch %d after %d", again.Self().Epoch, old.Epoch)
		}
		pass(2 * members.DefaultTTL)
		sees(t, a, "b")
		if diff := cmp.Diff([]string{"joined b", "left b", "joined b"}, a.kinds()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestDuplicateName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a := join(t, s, record("a"))
		other := record("a")
		other.ID = "another"
		other.Addresses = []string{"elsewhere:1"}
		_, err := members.Join(t.Context(), members.Options{Service: s.Client(), Self: other})
		if !errors.Is(err, members.ErrTaken) {
			t.Errorf("the second a: %v", err)
		}
		pass(2 * members.DefaultTTL)
		if st := a.State(); st.Problem != "" || s.Stats().Values != 2 || s.Stats().Leases != 1 {
			t.Errorf("the first a: %+v, service %+v", st, s.Stats())
		}
	})
}

// pass lets time pass, instantly in a bubble.
func pass(d time.Duration) { <-time.After(d) }
