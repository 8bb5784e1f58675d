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
	"github.com/hmcfs/hmcfs/metadata/coord/memory"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// node is a member with its way to the service, and what it was told.
type node struct {
	*members.Members
	client *memory.Client

	mu     sync.Mutex
	events []members.Event
}

// record is one of a test's nodes.
func record(name string) members.Record {
	return members.Record{
		Name:      members.Name(name),
		Addresses: []string{name + ":7070"},
		ID:        "id-" + name,
		Devices:   []members.Device{{Name: "sim0", Total: 1 << 20}},
	}
}

// join has a node join that leaves with the test.
func join(t *testing.T, s *memory.Server, self members.Record) *node {
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

// names are who a view shows.
func names(v members.View) []string {
	out := []string{}
	for _, r := range v.Nodes() {
		out = append(out, string(r.Name))
	}
	return out
}

// sees fails the test if a view does not show just these.
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

// kinds are what a node was told, in words, and forgets it.
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
		s := memory.NewServer(memory.Options{})
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
		if st := s.Stats(); st.Values != 1 || st.Leases != 1 {
			t.Errorf("left in the service: %+v", st)
		}
	})
}

func TestDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer(memory.Options{})
		a, b := join(t, s, record("a")), join(t, s, record("b"))
		before := b.Self().Epoch
		b.client.SetCut(true)
		pass(members.DefaultTTL - time.Millisecond)
		sees(t, a, "b")
		pass(2 * time.Millisecond)
		sees(t, a)
		again := join(t, s, record("b"))
		sees(t, a, "b")
		if again.Self().Epoch <= before {
			t.Errorf("epoch %d after %d", again.Self().Epoch, before)
		}
	})
}

func TestKilledNodeComesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer(memory.Options{})
		a := join(t, s, record("a"))
		b := join(t, s, record("b"))
		old := b.Self()
		b.client.Close() //nolint:errcheck // Killed: its lease runs on.
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
		s := memory.NewServer(memory.Options{})
		a := join(t, s, record("a"))
		other := record("a")
		other.ID = "another"
		other.Addresses = []string{"elsewhere:1"}
		_, err := members.Join(t.Context(), members.Options{Service: s.Client(), Self: other})
		if !errors.Is(err, members.ErrTaken) {
			t.Errorf("the second a: %v", err)
		}
		pass(2 * members.DefaultTTL)
		if st := a.State(); st.Problem != "" || s.Stats().Values != 1 || s.Stats().Leases != 1 {
			t.Errorf("the first a: %+v, service %+v", st, s.Stats())
		}
	})
}

// pass lets time pass, which in a bubble takes none.
func pass(d time.Duration) { <-time.After(d) }
