package members_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/memcoord"
)

// told fails the test unless a node has received exactly these events.
func (n *node) told(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), n.kinds()); diff != "" {
		t.Errorf("%s was told (-want +got):\n%s", n.Self().Name, diff)
	}
}

// leaseOf returns a node's lease, which it must have.
func leaseOf(t *testing.T, n *node) coord.Lease {
	t.Helper()
	synctest.Wait()
	l, epoch, _ := n.Lease()
	if l == nil || epoch != n.Self().Epoch {
		t.Fatalf("%s: lease %v of epoch %d", n.Self().Name, l, epoch)
	}
	return l
}

// reachable fails the test unless the state is as wanted.
func reachable(t *testing.T, n *node, want bool) {
	t.Helper()
	synctest.Wait()
	st := n.State()
	if st.UnreachableSince.IsZero() != want || (st.Problem == "") != want {
		t.Errorf("%s: %+v, want reachable %v", n.Self().Name, st, want)
	}
}

func TestServiceAway(t *testing.T) {
	for name, away := range map[string]time.Duration{"shorter than a lease": 6 * time.Second, "longer": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memcoord.NewServer(memcoord.Options{})
				a, b := join(t, s, record("a")), join(t, s, record("b"))
				a.told(t, "joined b")
				epoch, before := a.Self().Epoch, time.Now()
				s.SetDown(true)
				pass(away)
				reachable(t, a, false)
				if since := a.State().UnreachableSince; since.Sub(before) > members.DefaultTTL {
					t.Errorf("unreachable since %v, was from %v", since, before)
				}
				sees(t, a, "b")
				s.SetDown(false)
				// A member that has lost its lease waits for up to TTL/3 before it tries
				// again, and with jitter up to 1.5 times as long.
				pass(members.DefaultTTL)
				reachable(t, a, true)
				reachable(t, b, true)
				sees(t, a, "b")
				sees(t, b, "a")
				a.told(t)
				if a.Self().Epoch != epoch {
					t.Error("another epoch")
				}
				leaseOf(t, a)
				pass(time.Minute)
				sees(t, a, "b")
				if st := s.Stats(); st.Values != 4 || st.Leases != 2 {
					t.Errorf("in the service: %+v", st)
				}
			})
		})
	}
}

// TestLeaseLostWhileCut has a node come back that the others consider dead.
func TestLeaseLostWhileCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, record("a")), join(t, s, record("b"))
		old, epoch, changed := b.Lease()
		b.client.SetCut(true)
		pass(time.Minute)
		lapsed(t, a, "b", true)
		sees(t, b, "a")
		select {
		case <-changed:
		default:
			t.Error("b has not heard of the end of its lease")
		}
		if l, _, _ := b.Lease(); l != nil {
			t.Error("b has a lease")
		}
		b.client.SetCut(false)
		pass(members.DefaultTTL)
		if leaseOf(t, b) == old {
			t.Error("the same lease")
		}
		lapsed(t, a, "b", false)
		reachable(t, b, true)
		a.told(t, "joined b", "changed b", "changed b")
		if r, _ := a.Get("b"); r.Epoch != epoch {
			t.Errorf("b comes back as %d, was %d", r.Epoch, epoch)
		}
	})
}

func TestServiceWiped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b, c := join(t, s, record("a")), join(t, s, record("b")), join(t, s, record("c"))
		old := leaseOf(t, a)
		s.Wipe()
		c.client.Kill() // and does not come back
		pass(members.DefaultTTL / 2)
		if leaseOf(t, a) == old {
			t.Error("the same lease")
		}
		sees(t, a, "b", "c")
		a.told(t, "joined b", "joined c")
		pass(members.DefaultTTL)
		sees(t, a, "b")
		sees(t, b, "a")
		a.told(t, "left c")
		pass(time.Minute)
		a.told(t)
		reachable(t, b, true)
	})
}

// TestRecordRemoved removes a node's record by hand.
func TestRecordRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, record("a")), join(t, s, record("b"))
		l := leaseOf(t, b)
		if _, err := s.Client().Delete(t.Context(), []coord.Entry{{Name: "nodes/b"}}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		sees(t, a, "b")
		if leaseOf(t, b) != l {
			t.Error("another lease")
		}
		pass(time.Minute)
		sees(t, a, "b")
		sees(t, b, "a")
	})
}

// TestRecordOverwritten overwrites a node's record with garbage, adds more beside it, and
// removes it.
func TestRecordOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, record("a")), join(t, s, record("b"))
		c := s.Client()
		e, err := c.Get(t.Context(), "nodes/b")
		if err != nil {
			t.Fatal(err)
		}
		e.Value = []byte("nonsense")
		if _, err = c.Replace(t.Context(), []coord.Entry{e}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err = c.Create(t.Context(), []coord.Entry{{Name: "nodes/x", Value: []byte(`{"name":"y"}`)}, {Name: "nodes/"}}, nil); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		sees(t, a, "b")
		reachable(t, b, true)
		if _, err = c.Delete(t.Context(), []coord.Entry{{Name: "nodes/b"}}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		reachable(t, b, true)
		sees(t, a, "b")
	})
}

// TestSuperseded starts a node again from the state directory of one that is alive: the
// older one yields, and comes back when the other one has left.
func TestSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		old := join(t, s, record("a"))
		newer := join(t, s, record("a"))
		pass(time.Minute)
		if st := old.State(); st.Problem == "" {
			t.Error("the older one is well")
		}
		reachable(t, newer, true)
		leave(t, newer.Members)
		pass(time.Minute)
		reachable(t, old, true)
		leaseOf(t, old)
	})
}

// unmarkable is a service that can be made to fail in replacing marks.
type unmarkable struct {
	coord.Service
	fails atomic.Bool
}

func (u *unmarkable) Replace(ctx context.Context, entries []coord.Entry, l coord.Lease) ([]coord.Result, error) {
	if u.fails.Load() && strings.HasSuffix(entries[0].Name, "/mark") {
		return nil, coord.ErrUnavailable
	}
	return u.Service.Replace(ctx, entries, l)
}

// TestLeaveBesideNewer has a node leave that could not update its mark, just when a later
// incarnation has: the later one's mark must remain, and show the node as lapsed when it is
// cut off.
func TestLeaveBesideNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		b, service := join(t, s, record("b")), &unmarkable{Service: s.Client()}
		old, err := members.Join(t.Context(), members.Options{Service: service, Self: record("a")})
		if err != nil {
			t.Fatal(err)
		}
		service.fails.Store(true)
		if err = old.Update(func(r *members.Record) { r.Version = "later" }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		newer := join(t, s, record("a"))
		leave(t, old)
		newer.client.SetCut(true)
		pass(2 * members.DefaultTTL)
		lapsed(t, b, "a", true)
	})
}

func TestHistoryForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a := join(t, s, record("a"))
		gone := join(t, s, record("gone"))
		a.client.SetCut(true)
		leave(t, gone.Members)
		join(t, s, record("b"))
		s.Compact()
		a.client.SetCut(false)
		pass(time.Second)
		sees(t, a, "b")
		a.told(t, "joined gone", "joined b", "left gone")
	})
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, record("a")), join(t, s, record("b"))
		grow := func(r *members.Record) {
			r.Devices = append(r.Devices, members.Device{Name: "sim" + strconv.Itoa(len(r.Devices))})
			r.Name, r.Epoch, r.ID = "other", 1, "other" // not its to change
		}
		if err := b.Update(grow); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r, _ := a.Get("b"); len(r.Devices) != 2 || r.Epoch != b.Self().Epoch || r.ID != "id-b" {
			t.Errorf("a sees %+v", r)
		}
		a.told(t, "joined b", "changed b")
		s.SetDown(true)
		if err := b.Update(grow); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		s.SetDown(false)
		pass(members.DefaultTTL)
		if r, _ := a.Get("b"); len(r.Devices) != 3 {
			t.Errorf("a sees %+v", r)
		}
		a.told(t, "changed b")
		if err := b.Update(func(r *members.Record) { r.Version = string(make([]byte, 1000)) }); err == nil {
			t.Error("a version of 1000 bytes is no fault")
		}
	})
}

func TestJoinRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		join(t, s, record("a"))
		for name, c := range map[string]struct {
			prepare func(c *memcoord.Client, o *members.Options)
			want    error
		}{
			"away":    {func(c *memcoord.Client, _ *members.Options) { c.SetCut(true) }, coord.ErrUnavailable},
			"name":    {func(_ *memcoord.Client, o *members.Options) { o.Self.Name = "a/b" }, members.ErrName},
			"no ID":   {func(_ *memcoord.Client, o *members.Options) { o.Self = members.Record{Name: "a"} }, members.ErrTaken},
			"closed":  {func(c *memcoord.Client, _ *members.Options) { _ = c.Close() }, coord.ErrClosed},
			"options": {func(_ *memcoord.Client, o *members.Options) { o.TTL, o.Self.Name = time.Millisecond, "" }, members.ErrName},
		} {
			o := members.Options{Service: s.Client(), Self: record("b")}
			client := s.Client()
			o.Service = client
			c.prepare(client, &o)
			if _, err := members.Join(t.Context(), o); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if st := s.Stats(); st.Values != 2 || st.Leases != 1 {
			t.Errorf("left in the service: %+v", st)
		}
	})
}

// sameRank returns two names with the same rank, found by trying.
func sameRank(t *testing.T) (a, b string) {
	t.Helper()
	seen := make(map[uint32]string)
	for i := range 1 << 20 {
		name := "node-" + strconv.Itoa(i)
		rank := members.Name(name).Rank()
		if other, ok := seen[rank]; ok {
			return other, name
		}
		seen[rank] = name
	}
	t.Fatal("none")
	return "", ""
}

func TestSameRank(t *testing.T) {
	one, two := sameRank(t)
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a := join(t, s, record(one))
		_, err := members.Join(t.Context(), members.Options{Service: s.Client(), Self: record(two)})
		if !errors.Is(err, members.ErrTaken) {
			t.Errorf("the second of the rank: %v", err)
		}
		synctest.Wait()
		sees(t, a)
		if st := s.Stats(); st.Values != 2 || st.Leases != 1 {
			t.Errorf("left in the service: %+v", st)
		}
	})
	_, err := members.Static(members.StaticOptions{Self: record(one), Peers: []members.Record{record(two)}})
	if !errors.Is(err, members.ErrTaken) {
		t.Errorf("static: %v", err)
	}
}

// lister counts the lists made through it.
type lister struct {
	*memcoord.Client
	lists atomic.Int32
}

func (l *lister) List(ctx context.Context, prefix, after string, limit int) ([]coord.Entry, coord.Revision, error) {
	l.lists.Add(1)
	return l.Client.List(ctx, prefix, after, limit)
}

// TestResume has a watch continue after an interruption without reading everything again,
// which is expensive with many nodes.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		way := &lister{Client: s.Client()}
		a, err := members.Join(t.Context(), members.Options{Service: way, Self: record("a")})
		if err != nil {
			t.Fatal(err)
		}
		defer leave(t, a)
		gone := join(t, s, record("gone"))
		synctest.Wait()
		before := way.lists.Load()
		way.SetCut(true)
		leave(t, gone.Members)
		join(t, s, record("b"))
		pass(time.Second)
		way.SetCut(false)
		pass(members.DefaultTTL)
		sees(t, a, "b")
		s.SetDown(true)
		pass(time.Second)
		s.SetDown(false)
		join(t, s, record("c"))
		pass(members.DefaultTTL)
		sees(t, a, "b", "c")
		if got := way.lists.Load(); got != before {
			t.Errorf("%d lists more", got-before)
		}
	})
}
