package keyindex_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/memcoord"
)

// node is a member with an index.
type node struct {
	*keyindex.Registry
	t       *testing.T
	client  *memcoord.Client
	members *members.Members
}

// join makes a node join, which leaves at the end of the test.
func join(t *testing.T, s *memcoord.Server, name string) *node {
	t.Helper()
	return joinLogged(t, s, name, nil)
}

func joinLogged(t *testing.T, s *memcoord.Server, name string, log *zap.Logger) *node {
	t.Helper()
	n := &node{t: t, client: s.Client()}
	var err error
	self := members.Record{Name: members.Name(name), Addresses: []string{name + ":1"}, ID: "id-" + name}
	if n.members, err = members.Join(t.Context(), members.Options{Service: n.client, Self: self}); err != nil {
		t.Fatal(err)
	}
	n.Registry, err = keyindex.New(keyindex.Options{Service: n.client, Self: self.Name, Lease: n.members.Lease, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := n.members.Close(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, coord.ErrClosed) && !errors.Is(err, coord.ErrUnavailable) {
			t.Error(err)
		}
	})
	return n
}

// claim claims keys and returns those that were granted.
func (n *node) claim(keys ...string) (granted []string) {
	n.t.Helper()
	for i, err := range n.Claim(n.t.Context(), keyindex.Keys, keys) {
		switch {
		case err == nil:
			granted = append(granted, keys[i])
		case !errors.Is(err, metadata.ErrExist) && !errors.Is(err, coord.ErrUnavailable):
			n.t.Errorf("claim %q: %v", keys[i], err)
		}
	}
	return granted
}

// gets fails the test unless exactly the wanted ones of the keys are granted.
func (n *node) gets(keys []string, want ...string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.claim(keys...)); diff != "" {
		n.t.Errorf("granted (-want +got):\n%s", diff)
	}
}

// finds fails the test unless a key is found at a node; empty means nowhere.
func (n *node) finds(key, at string) {
	n.t.Helper()
	synctest.Wait()
	p, err := n.Find(n.t.Context(), keyindex.Keys, key)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		n.t.Errorf("find %q: %v", key, err)
	}
	if string(p.Node) != at {
		n.t.Errorf("key %q is at %q, want %q", key, p.Node, at)
	}
}

// listed lists all keys, in pages of at most limit.
func (n *node) listed(limit int) (keys []string) {
	n.t.Helper()
	for after := ""; ; {
		places, err := n.List(n.t.Context(), keyindex.Keys, after, limit)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, p := range places {
			keys = append(keys, p.Key)
			after = p.Key
		}
		if len(places) < limit {
			return keys
		}
	}
}

func (n *node) is(want keyindex.State) {
	n.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, n.State()); diff != "" {
		n.t.Errorf("state (-want +got):\n%s", diff)
	}
}

func TestClaimAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.gets([]string{"x", "y"}, "x", "y")
		a.gets([]string{"x"}, "x")
		b.gets([]string{"x", "z", "y"}, "z")
		err := b.Claim(t.Context(), keyindex.Keys, []string{"x"})[0]
		if want := `node a has key "x": ` + metadata.ErrExist.Error(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		b.finds("x", "a")
		a.finds("x", "")
		a.finds("z", "b")
		b.finds("nothing", "")
		a.is(keyindex.State{Keys: 2})
		b.is(keyindex.State{Keys: 1})
		if errs := b.Claim(t.Context(), keyindex.Publish, []string{"x"}); errs[0] != nil {
			t.Errorf("another space: %v", errs[0])
		}
		a.Release(keyindex.Keys, []string{"x", "never had"})
		synctest.Wait()
		b.gets([]string{"x"}, "x")
		// The remembered place is wrong by now, until it is forgotten.
		b.Forget(keyindex.Keys, "x")
		a.finds("x", "b")
		a.is(keyindex.State{Keys: 1})
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.claim("k1", "k3", "k5")
		b.claim("k2", "k4")
		var got []string
		for after := ""; ; {
			places, err := a.List(t.Context(), keyindex.Keys, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range places {
				got = append(got, p.Key+string(p.Node))
				after = p.Key
			}
			if len(places) < 2 {
				break
			}
		}
		if diff := cmp.Diff([]string{"k1a", "k2b", "k3a", "k4b", "k5a"}, got); diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
	})
}

// TestAway: while the service is away keys are used without a claim, which is made when it
// is back; of two nodes that have set one key meanwhile, one keeps it.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.claim("before")
		a.client.SetCut(true)
		a.gets([]string{"before", "x", "y"}, "before")
		a.is(keyindex.State{Keys: 1})
		// They are used nevertheless.
		a.Have(keyindex.Keys, []string{"x", "y"})
		if _, err := a.Find(t.Context(), keyindex.Keys, "z"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("find: %v", err)
		}
		if _, err := a.List(t.Context(), keyindex.Keys, "", 1); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("list: %v", err)
		}
		a.is(keyindex.State{Keys: 3, Unasked: 2})
		b.gets([]string{"x"}, "x")
		// The lease ends.
		pass(2 * members.DefaultTTL)
		b.gets([]string{"before"}, "before")
		told := map[string]members.Name{}
		a.OnContested(func(s keyindex.Space, keys []string, by members.Name) bool {
			for _, key := range keys {
				told[string(s)+" "+key] = by
			}
			return true
		})
		a.client.SetCut(false)
		pass(members.DefaultTTL)
		a.is(keyindex.State{Keys: 3, Contested: 2})
		if diff := cmp.Diff(map[string]members.Name{"keys before": "b", "keys x": "b"}, told); diff != "" {
			t.Errorf("told to be contested (-want +got):\n%s", diff)
		}
		b.finds("y", "a")
		a.finds("x", "b")
		b.Release(keyindex.Keys, []string{"x"})
		pass(time.Minute)
		a.is(keyindex.State{Keys: 3, Contested: 1})
		b.finds("x", "a")
		b.is(keyindex.State{Keys: 1})
		a.Release(keyindex.Keys, []string{"before", "x", "y"})
		a.is(keyindex.State{})
		b.finds("before", "")
		a.finds("before", "b")
	})
}

// TestUnsettled has another node keep an entry for a key of this node: as long as the
// conflict is not settled the service is asked again soon, and the callback is called when
// it can be.
func TestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.claim("z")
		b.claim("x")
		var told int
		a.OnContested(func(keyindex.Space, []string, members.Name) bool {
			told++
			return false
		})
		a.Have(keyindex.Keys, []string{"x", "y"})
		pass(4500 * time.Millisecond)
		a.is(keyindex.State{Keys: 3, Contested: 1})
		if told != 5 {
			t.Errorf("told %d times in 4.5 s, want 5: at once, and every second", told)
		}
		b.Release(keyindex.Keys, []string{"x"})
		pass(time.Second)
		a.is(keyindex.State{Keys: 3})
		b.finds("x", "a")
	})
}

// TestManyWhileAway claims so many keys from a service that does not answer that the worker
// runs in between: it must not treat any of them as in use.
func TestManyWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a := join(t, s, "a")
		keys := make([]string, 2000)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		for range 3 {
			a.client.SetCut(true)
			a.gets(keys)
			a.is(keyindex.State{})
			a.client.SetCut(false)
			pass(time.Minute)
		}
	})
}

// TestReleaseWhileAway: a key that is released while the service is away is free when it is
// back, or when the lease ends.
func TestReleaseWhileAway(t *testing.T) {
	for name, pause := range map[string]time.Duration{"short": time.Second, "long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memcoord.NewServer(memcoord.Options{})
				a, b := join(t, s, "a"), join(t, s, "b")
				a.claim("x", "y")
				a.client.SetCut(true)
				a.Release(keyindex.Keys, []string{"x", "y"})
				synctest.Wait()
				a.gets([]string{"y"}) // whether it still belongs to a is unknown
				a.Have(keyindex.Keys, []string{"y"})
				pass(pause)
				a.client.SetCut(false)
				pass(members.DefaultTTL)
				a.is(keyindex.State{Keys: 1})
				b.gets([]string{"x", "y"}, "x")
			})
		})
	}
}

// TestClaimAgainWhileAway: a key that was released while the service does not answer is not
// granted from memory: another node may have it by then.
func TestClaimAgainWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.claim("x", "y")
		a.client.SetCut(true)
		a.gets([]string{"z"}) // now it is known that the service does not answer
		pass(2 * members.DefaultTTL)
		b.gets([]string{"x"}, "x")
		a.Release(keyindex.Keys, []string{"x", "y"})
		a.gets([]string{"x", "y"})
		a.gets([]string{"x", "y"}) // nor the second time
		a.client.SetCut(false)
		pass(members.DefaultTTL)
		a.is(keyindex.State{})
		a.gets([]string{"x", "y"}, "y")
		b.finds("y", "a")
	})
}

// TestDown: the service stops and restarts, or has lost all data.
func TestDown(t *testing.T) {
	for name, harm := range map[string]func(s *memcoord.Server){
		"stopped": func(s *memcoord.Server) {
			s.SetDown(true)
			pass(time.Hour)
			s.SetDown(false)
		},
		"wiped": func(s *memcoord.Server) { s.Wipe() },
		"stopped and wiped": func(s *memcoord.Server) {
			s.SetDown(true)
			pass(5 * time.Second)
			s.Wipe()
			s.SetDown(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memcoord.NewServer(memcoord.Options{})
				a, b := join(t, s, "a"), join(t, s, "b")
				a.claim("x")
				harm(s)
				pass(time.Minute)
				a.is(keyindex.State{Keys: 1})
				b.finds("x", "a")
				b.gets([]string{"x"})
			})
		})
	}
}

// TestEmptied: the keys are removed from the service by hand.
func TestEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.claim("x", "y")
		if _, err := b.client.Delete(t.Context(), []coord.Entry{{Name: "keys/x"}, {Name: "keys/y"}}); err != nil {
			t.Fatal(err)
		}
		b.finds("x", "")
		pass(time.Minute)
		b.finds("x", "a")
		b.finds("y", "a")
	})
}

// TestDeath: a key is free after the death of its node.
func TestDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.claim("x")
		a.client.Kill()
		b.finds("x", "")
		b.gets([]string{"x"}, "x")
	})
}

// TestStrange: entries of the service that no node has written do no harm. They are in no
// list, and the entries after them are.
func TestStrange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		var strange []coord.Entry
		for i, value := range []string{"", "a", "a 5 6", "a b", " 5", "a/b 5", string(make([]byte, 1000))} {
			strange = append(strange, coord.Entry{Name: fmt.Sprint("keys/k", i), Value: []byte(value)})
		}
		for _, name := range []string{"", ".", "..", "a/b", "/", "a\x00b", strings.Repeat("x", 256), "a/../../b"} {
			strange = append(strange, coord.Entry{Name: "keys/" + name, Value: []byte("b 5")})
		}
		if _, err := a.client.Create(t.Context(), strange, nil); err != nil {
			t.Fatal(err)
		}
		a.gets([]string{"k0"})
		if _, err := a.Find(t.Context(), keyindex.Keys, "k1"); err == nil || errors.Is(err, metadata.ErrNotExist) {
			t.Errorf("find: %v", err)
		}
		b.gets([]string{"-first", "k00", "z"}, "-first", "k00", "z")
		for limit := 1; limit < 5; limit++ {
			if diff := cmp.Diff([]string{"-first", "k00", "z"}, a.listed(limit)); diff != "" {
				t.Errorf("in pages of %d (-want +got):\n%s", limit, diff)
			}
		}
	})
}

// TestStrangeOnce: an unreadable entry in place of one of this node's is reported once,
// however often it is found.
func TestStrangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		core, told := observer.New(zap.WarnLevel)
		a := joinLogged(t, s, "a", zap.New(core))
		name := "keys/" + strings.Repeat("k", metadata.MaxKey)
		if _, err := a.client.Create(t.Context(), []coord.Entry{{Name: name, Value: []byte("nonsense")}}, nil); err != nil {
			t.Fatal(err)
		}
		a.Have(keyindex.Keys, []string{name[len("keys/"):]})
		pass(5 * time.Minute)
		if n := told.FilterMessageSnippet("cannot decode").Len(); n != 1 {
			t.Errorf("told %d times in 5 minutes", n)
		}
		for i := range 1000 {
			e := coord.Entry{Name: fmt.Sprintf("keys/n%04d", i), Value: []byte("nonsense")}
			if _, err := a.client.Create(t.Context(), []coord.Entry{e}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			if _, err := a.List(t.Context(), keyindex.Keys, "", 10); err != nil {
				t.Fatal(err)
			}
		}
		if n := told.Len(); n > 20 {
			t.Errorf("told %d times of 1000 entries", n)
		}
		if n := a.State().Unreadable; n != 1001 {
			t.Errorf("%d entries that can't be read, want 1001", n)
		}
		if _, err := a.client.Delete(t.Context(), []coord.Entry{{Name: "keys/n0007"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Find(t.Context(), keyindex.Keys, "n0007"); !errors.Is(err, metadata.ErrNotExist) {
			t.Errorf("find one that is gone: %v", err)
		}
		if n := a.State().Unreadable; n != 1000 {
			t.Errorf("%d entries that can't be read after one is gone, want 1000", n)
		}
	})
}

func TestWatch(t *testing.T) {
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprint("w-", i)
	}
	for name, keys := range map[string][]string{"few": {"w-1", "w-3"}, "many": many} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memcoord.NewServer(memcoord.Options{})
				a, b := join(t, s, "a"), join(t, s, "b")
				b.claim("w-1")
				w, err := a.Watch(t.Context(), keyindex.Keys, keys)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				b.claim("w-3", "other", "w-33")
				a.claim("w-2")
				places, err := w.Next(t.Context())
				if want := []keyindex.Place{{Key: "w-3", Node: "b"}}; err != nil || !slices.Equal(places, want) {
					t.Errorf("came %v, %v, want %v", places, err, want)
				}
				over, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				if places, err = w.Next(over); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("came %v, %v", places, err)
				}
				a.client.SetCut(true)
				if _, err = w.Next(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
					t.Errorf("cut: %v", err)
				}
			})
		})
	}
}

// TestWatchEmptyHands: a watch that is never read, and one that can't start.
func TestWatchEmptyHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		w, err := a.Watch(t.Context(), keyindex.Keys, []string{"x", "y"})
		if err != nil {
			t.Fatal(err)
		}
		b.claim("x", "y")
		synctest.Wait()
		w.Close()
		a.client.SetCut(true)
		if _, err = a.Watch(t.Context(), keyindex.Keys, []string{"x"}); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("cut: %v", err)
		}
	})
}

// TestContest has nodes claim and release the same keys, many at a time: no two nodes have
// a key at the same time, and at the end no node has any.
func TestContest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		o := &owners{t: t, of: map[string]string{}}
		var users sync.WaitGroup
		var nodes []*node
		for i, name := range []string{"n1", "n2", "n3"} {
			n := join(t, s, name)
			nodes = append(nodes, n)
			users.Go(func() { o.contend(n, name, rand.New(rand.NewPCG(7, uint64(i)))) })
		}
		users.Wait()
		synctest.Wait()
		for _, n := range nodes {
			n.is(keyindex.State{})
		}
		// The record of each node and its mark.
		if st := s.Stats(); st.Values != 2*len(nodes) {
			t.Errorf("left in the service: %+v", st)
		}
	})
}

// owners records the owner of each key, as seen by the nodes that were granted it.
type owners struct {
	t  *testing.T
	mu sync.Mutex
	// +checklocks:mu
	of map[string]string
}

// contend claims and releases keys.
func (o *owners) contend(n *node, name string, rng *rand.Rand) {
	for range 300 {
		some := []string{"a", "b", "c", "d", "e", "f"}
		rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		got := n.claim(some[:1+rng.IntN(3)]...)
		o.own(name, got)
		pass(time.Duration(rng.IntN(1000)))
		o.own("", got)
		n.Release(keyindex.Keys, got)
	}
}

// own records the owner of keys; an empty name means none.
func (o *owners) own(name string, keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		if by := o.of[key]; name != "" && by != "" {
			o.t.Errorf("%s and %s have %q", by, name, key)
		}
		o.of[key] = name
	}
}

// TestContestAway is TestContest with the connections to the service cut and restored: at
// the end the service and the nodes agree.
func TestContestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		rng := rand.New(rand.NewPCG(1, 2))
		nodes := []*node{join(t, s, "n1"), join(t, s, "n2")}
		used := []map[string]bool{{}, {}}
		for range 2000 {
			i, key := rng.IntN(len(nodes)), string(rune('a'+rng.IntN(10)))
			n := nodes[i]
			switch rng.IntN(8) {
			case 0:
				n.client.SetCut(rng.IntN(2) == 0)
			case 1:
				pass(time.Duration(rng.IntN(int(8 * time.Second))))
			case 2, 3, 4:
				n.Release(keyindex.Keys, []string{key})
				delete(used[i], key)
			default:
				err := n.Claim(t.Context(), keyindex.Keys, []string{key})[0]
				if err == nil || errors.Is(err, coord.ErrUnavailable) {
					n.Have(keyindex.Keys, []string{key})
					used[i][key] = true
				}
			}
		}
		for _, n := range nodes {
			n.client.SetCut(false)
		}
		pass(time.Minute)
		agree(t, nodes, used)
	})
}

// agree fails the test unless the service has exactly one owner of each key in use, and no
// other key.
func agree(t *testing.T, nodes []*node, used []map[string]bool) {
	t.Helper()
	synctest.Wait()
	places, err := nodes[0].List(t.Context(), keyindex.Keys, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]members.Name{}
	for _, p := range places {
		at[p.Key] = p.Node
	}
	for i, n := range nodes {
		contested := 0
		for key := range used[i] {
			switch at[key] {
			case "":
				t.Errorf("%q of node %d is nowhere", key, i)
			case n.members.Self().Name:
			default:
				contested++
			}
		}
		n.is(keyindex.State{Keys: len(used[i]), Contested: contested})
		for key, node := range at {
			if node == n.members.Self().Name && !used[i][key] {
				t.Errorf("%q is at %s, which does not use it", key, node)
			}
		}
	}
}

// pass lets the bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }
