package members_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/coord/etcd"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// limit bounds the waits for a real etcd on a busy machine.
const limit = 60 * time.Second

// real makes a node join at an etcd.
func real(t *testing.T, e *etcdkit.Server, self members.Record) (*members.Members, *etcd.Service) {
	t.Helper()
	s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: e.Endpoints(), Prefix: "/hmcfs/test/", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	m, err := members.Join(t.Context(), members.Options{
		Service: s, Self: self, TTL: 2 * time.Second, Probe: 200 * time.Millisecond, Endpoints: e.Endpoints(),
	})
	if err != nil {
		t.Fatalf("%s joins: %v", self.Name, errors.Join(err, s.Close()))
	}
	t.Cleanup(func() {
		_ = m.Close(context.WithoutCancel(t.Context())) // its service may be closed
		_ = s.Close()
	})
	return m, s
}

// waits waits until a view shows exactly these nodes, and has no problem.
func waits(t *testing.T, m *members.Members, want ...string) {
	t.Helper()
	kit.Eventually(t, limit, func() error {
		st := m.State()
		if got := names(m); !slices.Equal(got, want) || st.Problem != "" || !st.UnreachableSince.IsZero() {
			return errors.New(string(m.Self().Name) + " has another view: " + st.Problem)
		}
		return nil
	})
}

func TestEtcd(t *testing.T) {
	e := etcdkit.Start(t, etcdkit.Options{})
	a, _ := real(t, e, record("a"))
	b, way := real(t, e, record("b"))
	waits(t, a, "b")
	waits(t, b, "a")
	epoch := a.Self().Epoch

	// A node that dies is known to be dead when its lease ends, and comes back with a new
	// epoch.
	if err := way.Close(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, limit, func() bool { r, known := a.Get("b"); return known && !r.Lapsed.IsZero() })
	again, _ := real(t, e, record("b"))
	waits(t, a, "b")
	kit.Eventually(t, limit, func() bool { r, _ := a.Get("b"); return r.Lapsed.IsZero() })
	if r, _ := a.Get("b"); r.Epoch <= b.Self().Epoch || r.Epoch != again.Self().Epoch {
		t.Errorf("b is %d, was %d", r.Epoch, b.Self().Epoch)
	}
	other := record("b")
	other.ID = "another"
	s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: e.Endpoints(), Prefix: "/hmcfs/test/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = members.Join(t.Context(), members.Options{Service: s, Self: other}); !errors.Is(err, members.ErrTaken) {
		t.Errorf("a second b: %v", err)
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}

	// Away for longer than a lease: the known nodes remain known.
	left := make(chan members.Event, 100)
	defer a.OnEvent(func(ev members.Event) { left <- ev })()
	e.Stop()
	kit.Eventually(t, limit, func() bool {
		l, _, _ := a.Lease()
		return l == nil && !a.State().UnreachableSince.IsZero()
	})
	if got := names(a); !slices.Equal(got, []string{"b"}) {
		t.Errorf("while etcd is away a sees %v", got)
	}
	if _, err = etcd.Open(t.Context(), etcd.Options{Endpoints: e.Endpoints(), Prefix: "/x/", Timeout: time.Second}); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("open while etcd is away: %v", err)
	}
	if err = e.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits(t, a, "b")
	waits(t, again, "a")

	// Data lost: all nodes register again.
	if err = e.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	look, err := etcd.Open(t.Context(), etcd.Options{Endpoints: e.Endpoints(), Prefix: "/hmcfs/test/"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = look.Close() }()
	kit.Eventually(t, limit, func() bool {
		entries, _, err := look.List(t.Context(), "nodes/", "", 10)
		return err == nil && len(entries) == 4
	})
	waits(t, a, "b")
	waits(t, again, "a")
	if a.Self().Epoch != epoch {
		t.Error("a is another one")
	}
	// The watches are on the new history.
	third, _ := real(t, e, record("c"))
	waits(t, a, "b", "c")
	waits(t, again, "a", "c")
	waits(t, third, "a", "b")
}
