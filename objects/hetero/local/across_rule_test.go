package local_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/kit"
	coordmem "github.com/hmcfs/hmcfs/tests/memcoord"
)

// answers holds the results of the operations on keys, in the words of docs/cluster.md.
type answers struct{ claim, get, exist, del, list string }

// The answers of the table: for a key that a node has, for one that no node has, and if it is
// unknown.
var (
	has     = answers{claim: "taken", get: "bytes", exist: "true", del: "done", list: "listed"}
	free    = answers{claim: "done", get: "not there", exist: "false", del: "done", list: "not listed"}
	unknown = answers{claim: "error", get: "error", exist: "error", del: "error", list: "error"}
	// known is for a key whose node the index names, while that node is unreachable.
	known = answers{claim: "taken", get: "error", exist: "error", del: "error", list: "listed"}
)

// judged is a world of a holder, a requester and a third node: a, b and c.
type judged struct {
	*across
	t     *testing.T
	links []*clustertest.Link
	// server and registries belong to a world with an index.
	server     *coordmem.Server
	registries map[members.Name]*registry
}

// registry is the index of one node.
type registry struct {
	*keyindex.Registry
	client *coordmem.Client
	lease  coord.Lease
}

// end ends the node's lease.
func (r *registry) end(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.Close(), r.lease.Revoke(context.WithoutCancel(t.Context()))); err != nil {
		t.Error(err)
	}
}

// until waits for a state of the node's index.
func (r *registry) until(t *testing.T, want keyindex.State) {
	t.Helper()
	kit.Eventually(t, time.Minute, func() bool { return r.State() == want })
}

func (j *judged) join(name members.Name) *registry {
	t := j.t
	t.Helper()
	r := &registry{client: j.server.Client()}
	var err error
	if r.lease, err = r.client.Grant(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	r.Registry, err = keyindex.New(keyindex.Options{
		Service: r.client, Self: name,
		Lease: func() (coord.Lease, members.Epoch, <-chan struct{}) { return r.lease, 1, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), r.client.Close()); err != nil {
			t.Error(err)
		}
	})
	j.registries[name] = r
	return r
}

func newJudged(t *testing.T, indexed bool) *judged {
	t.Helper()
	j := &judged{t: t, registries: map[members.Name]*registry{}}
	o := clustertest.Options{Change: func(name members.Name, o *cluster.Options) {
		o.Timeout, o.DialTimeout = 4*time.Second, 3*time.Second
		if j.server != nil {
			o.Index = j.join(name)
		}
	}}
	if indexed {
		j.server = coordmem.NewServer(coordmem.Options{})
	}
	j.across = newAcross(t, o, "a", "b", "c")
	j.links = j.nodes.Links("a", "b")
	return j
}

// states returns the possible states of the holder, which has the keys.
func (j *judged) states() map[string]func() {
	each := func(do func(l *clustertest.Link)) {
		for _, l := range j.links {
			do(l)
		}
	}
	die := func() {
		j.nodes.Node("a").Leave()
		if j.server != nil {
			j.registries["a"].end(j.t)
			for _, other := range []members.Name{"b", "c"} {
				j.nodes.Node(other).View.Hide("a", true)
			}
		}
	}
	back := func() {
		j.nodes.Node("a").Join()
		for _, other := range []members.Name{"b", "c"} {
			j.nodes.Node(other).View.Hide("a", false)
		}
	}
	return map[string]func(){
		"reachable": func() {},
		"slow":      func() { each(func(l *clustertest.Link) { l.Slow(1200 * time.Millisecond) }) },
		"cut":       func() { each((*clustertest.Link).Cut) },
		"dead":      die,
		"forgotten": func() {
			die()
			if err := j.nodes.Node("b").View.Forget(j.t.Context(), "a"); err != nil {
				j.t.Error(err)
			}
		},
		"returned": func() {
			die()
			back()
			b := j.nodes.Node("b").Cluster
			kit.Eventually(j.t, time.Minute, func() bool {
				places, err := b.Places(j.t.Context(), false, "", 100)
				return err == nil && len(places) == 6
			})
		},
	}
}

// operate carries out each operation on a key of the holder, concurrently, and returns the
// results.
func (j *judged) operate() (got answers) {
	t, ctx := j.t, j.t.Context()
	b := j.at(t, "b")
	from, into := b.piece(t, 1, 100, 8), b.piece(t, 1, 100, 9)
	one := func(r hetero.Results, err error) error {
		if err == nil && len(r) == 1 {
			err = r[0].Err
		}
		return err
	}
	var work sync.WaitGroup
	work.Go(func() {
		r, err := b.client.MSetD2H(ctx, []string{"claim"}, from.lists, hetero.SetOptions{Existing: hetero.ExistingFail})
		got.claim = j.word(one(r, err))
	})
	work.Go(func() {
		r, err := b.client.MGetH2D(ctx, []string{"get"}, into.lists, hetero.GetOptions{})
		if got.get = j.word(one(r, err)); got.get == "done" {
			bytes := make([]byte, into.size)
			into.Read(t, 0, bytes)
			if got.get = "bytes"; kit.DiffAt(bytes, 1, 0) >= 0 {
				t.Error("other bytes")
			}
		}
	})
	work.Go(func() {
		there, err := b.client.Exist(ctx, []string{"exist"})
		if got.exist = j.word(err); got.exist == "done" {
			got.exist = map[bool]string{true: "true", false: "false"}[there[0]]
		}
	})
	work.Go(func() {
		r, err := b.client.Delete(ctx, []string{"del"})
		got.del = j.word(one(r, err))
	})
	work.Go(func() {
		places, err := j.nodes.Node("b").Cluster.Places(ctx, false, "", 100)
		if got.list = j.word(err); got.list == "done" {
			got.list = "not listed"
		}
		others := false
		for _, p := range places {
			others = others || p.Key == "of-c"
			if p.Key == "list" {
				got.list = "listed"
			}
		}
		if !others {
			t.Error("the keys of the third node are not listed")
		}
	})
	work.Wait()
	return got
}

// word returns the result of an operation as a word. An error names the holder.
func (j *judged) word(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, hetero.ErrExist):
		return "taken"
	case errors.Is(err, hetero.ErrNotFound):
		return "not there"
	case !errors.Is(err, hetero.ErrDisconnected) && !errors.Is(err, cluster.ErrUnreachable), !strings.Contains(err.Error(), "node a"):
		j.t.Errorf("an error that does not name the node: %v", err)
	}
	return "error"
}

// TestUnanswered is the table of docs/cluster.md: the results for a key of a node in each
// state, with each kind of view of the nodes.
func TestUnanswered(t *testing.T) {
	table := map[string]map[string]answers{
		"list":         {"reachable": has, "slow": has, "cut": unknown, "dead": unknown, "returned": has, "forgotten": free},
		"etcd":         {"reachable": has, "slow": has, "cut": known, "dead": free, "returned": has},
		"etcd stopped": {"reachable": has, "slow": has, "cut": unknown, "dead": unknown},
	}
	for mode, row := range table {
		for state, want := range row {
			t.Run(mode+"/"+state, func(t *testing.T) {
				kit.Check(t)
				j := newJudged(t, mode != "list")
				a, c := j.at(t, "a"), j.at(t, "c")
				keys := []string{"get", "claim", "exist", "del", "list"}
				well(t)(a.client.MSetD2H(t.Context(), keys, a.piece(t, len(keys), 100, 1).lists, hetero.SetOptions{}))
				well(t)(c.client.MSetD2H(t.Context(), []string{"of-c"}, c.piece(t, 1, 100, 2).lists, hetero.SetOptions{}))
				// The two are connected.
				if there, err := j.at(t, "b").client.Exist(t.Context(), []string{"get"}); err != nil || !there[0] {
					t.Fatalf("before: %v, %v", there, err)
				}
				if mode == "etcd stopped" {
					j.server.SetDown(true)
				}
				if state == "dead" && mode == "etcd stopped" {
					j.nodes.Node("a").Leave() // and cannot notify the others
				} else {
					j.states()[state]()
				}
				got := j.operate()
				if got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			})
		}
	}
}

// TestMovedKey moves a key to another node than the one that a requester has cached: it is
// found there, and removed there.
func TestMovedKey(t *testing.T) {
	kit.Check(t)
	j := newJudged(t, true)
	a, b, c := j.at(t, "a"), j.at(t, "b"), j.at(t, "c")
	keys := []string{"k"}
	well(t)(c.client.MSetD2H(t.Context(), keys, c.piece(t, 1, 100, 1).lists, hetero.SetOptions{}))
	wantThere(t, true, b) // which has cached c
	well(t)(c.client.Delete(t.Context(), keys))
	well(t)(a.client.MSetD2H(t.Context(), keys, a.piece(t, 1, 100, 2).lists, hetero.SetOptions{}))
	well(t)(b.client.Delete(t.Context(), keys))
	wantThere(t, false, a, b, c)
}

// TestUnindexedKey has a key of a node that the index does not know of yet: nodes that reach
// the index find it nevertheless.
func TestUnindexedKey(t *testing.T) {
	kit.Check(t)
	j := newJudged(t, true)
	a, b, c := j.at(t, "a"), j.at(t, "b"), j.at(t, "c")
	keys := []string{"k"}
	j.registries["b"].client.SetCut(true)
	well(t)(b.client.MSetD2H(t.Context(), keys, b.piece(t, 1, 100, 1).lists, hetero.SetOptions{Existing: hetero.ExistingFail}))
	wantThere(t, true, a, b, c)
	if r, err := a.client.MSetD2H(t.Context(), keys, a.piece(t, 1, 100, 2).lists, hetero.SetOptions{Existing: hetero.ExistingFail}); !errors.Is(r[0].Err, hetero.ErrExist) {
		t.Errorf("set on two nodes: %v, %v", r, err)
	}
	well(t)(a.client.Delete(t.Context(), keys))
	wantThere(t, false, a, b, c)

	// The index names a node that has released the key, and can't inform the index.
	well(t)(a.client.MSetD2H(t.Context(), keys, a.piece(t, 1, 100, 3).lists, hetero.SetOptions{}))
	j.registries["a"].client.SetCut(true)
	well(t)(a.client.Delete(t.Context(), keys))
	well(t)(b.client.MSetD2H(t.Context(), keys, b.piece(t, 1, 100, 4).lists, hetero.SetOptions{Existing: hetero.ExistingFail}))
	wantThere(t, true, a, b, c)

	// The same holds once b reaches the index: the key is b's, also for an index that a becomes
	// visible to again.
	j.registries["b"].client.SetCut(false)
	j.registries["b"].until(t, keyindex.State{Keys: 1, Contested: 1})
	wantThere(t, true, a, b, c)
	j.registries["a"].client.SetCut(false)
	j.registries["b"].until(t, keyindex.State{Keys: 1})
	wantThere(t, true, a, b, c)
	if n := j.conflicts(); n != 0 {
		t.Errorf("%d conflicts of a key that one node has", n)
	}
}

// TestUnindexedKeyThatTwoWanted has b and c set a key at the same time, while neither can
// inform the index: a, which both have asked, looks for it at the one that has it, and not only
// at the one that has asked last.
func TestUnindexedKeyThatTwoWanted(t *testing.T) {
	kit.Check(t)
	j := newJudged(t, true)
	a, b, c := j.at(t, "a"), j.at(t, "b"), j.at(t, "c")
	keys := []string{"k"}
	j.registries["b"].client.SetCut(true)
	j.registries["c"].client.SetCut(true)
	for round := range uint64(kit.Rounds(50, 50, 500)) {
		set := func(by *peer) (granted bool) {
			r, err := by.client.MSetD2H(t.Context(), keys, by.piece(t, 1, 100, round).lists, hetero.SetOptions{Existing: hetero.ExistingFail})
			return err == nil && r[0].Err == nil
		}
		other := make(chan bool)
		go func() { other <- set(c) }()
		one := set(b)
		if two := <-other; one == two {
			t.Fatalf("set on b: %t, on c: %t", one, two)
		}
		wantThere(t, true, a, b, c)
		well(t)(a.client.Delete(t.Context(), keys))
		wantThere(t, false, a, b, c)
		if t.Failed() {
			return
		}
	}
}

// wantThere checks that all users get the same answer on whether the key k exists.
func wantThere(t *testing.T, want bool, users ...*peer) {
	t.Helper()
	for i, p := range users {
		if there, err := p.client.Exist(t.Context(), []string{"k"}); err != nil || there[0] != want {
			t.Errorf("user %d is told of the key: %v, %v; want %t", i, there, err, want)
		}
	}
}

// TestForkHeals has two nodes that don't know of each other use the same keys. Once they are
// connected, each key belongs, for both, to the node whose object was made earlier; with an
// index, to the node that the index names. The other object stays as a file, and both nodes
// report it.
func TestForkHeals(t *testing.T) {
	for _, mode := range []string{"list", "etcd"} {
		t.Run(mode, func(t *testing.T) {
			kit.Check(t)
			j := newJudged(t, mode == "etcd")
			apart := func(apart bool) {
				j.nodes.Node("a").View.Hide("b", apart)
				j.nodes.Node("b").View.Hide("a", apart)
				if j.server != nil {
					j.server.SetDown(apart)
				}
			}
			a, b := j.at(t, "a"), j.at(t, "b")
			events := j.Listen(t)
			apart(true)
			well(t)(a.client.MSetD2H(t.Context(), []string{"first-a"}, a.piece(t, 1, 100, 1).lists, hetero.SetOptions{Existing: hetero.ExistingFail}))
			both := []string{"first-a", "first-b"}
			fromB := b.piece(t, 2, 100, 2)
			well(t)(b.client.MSetD2H(t.Context(), both, fromB.lists, hetero.SetOptions{Existing: hetero.ExistingFail}))
			well(t)(a.client.MSetD2H(t.Context(), both[1:], a.piece(t, 1, 100, 3).lists, hetero.SetOptions{Existing: hetero.ExistingFail}))
			apart(false)

			told := heard(t, events, map[string]int{"list": 4, "etcd": 2}[mode])
			seen := oneAnswer(t, both, a, b, j.at(t, "c"))
			if want := string(kit.Bytes(1, 0, 100)) + string(kit.Bytes(2, 100, 100)); mode == "list" && seen != want {
				t.Error("a key is not the earlier object's")
			}
			if n := j.conflicts(); n != told {
				t.Errorf("%d conflicts are counted, %d told", n, told)
			}
		})
	}
}

// heard waits for events of conflicts, and returns their number.
func heard(t *testing.T, events heterotest.Listener, want int) (told int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for told < want {
		e, err := events.Next(ctx)
		if err != nil {
			t.Fatalf("%d conflicts are told: %v", told, err)
		}
		if e.Kind == string(objects.EventConflict) {
			told++
		}
	}
	return told
}

// oneAnswer returns the contents of two keys of 100 bytes, and fails the test unless all users
// read the same.
func oneAnswer(t *testing.T, keys []string, users ...*peer) (first string) {
	t.Helper()
	for i, p := range users {
		into := p.piece(t, len(keys), 100, 9)
		well(t)(p.client.MGetH2D(t.Context(), keys, into.lists, hetero.GetOptions{}))
		got := make([]byte, into.size)
		into.Read(t, 0, got)
		if i == 0 {
			first = string(got)
		}
		if string(got) != first {
			t.Errorf("user %d reads other bytes", i)
		}
	}
	return first
}

// conflicts returns the number of conflicts that a and b know of. The file of each exists, with
// the key if it is reported to have been kept.
func (j *judged) conflicts() (all int) {
	t := j.t
	t.Helper()
	for _, name := range []members.Name{"a", "b"} {
		n := j.nodes.Node(name)
		count, last := n.Cluster.KeyConflicts()
		all += int(count)
		for _, one := range last {
			dir, file, _ := strings.Cut(one.Path, "/.keys/")
			keys, err := n.Store.Lookup(t.Context(), n.Dir(dir), ".keys")
			if err != nil {
				t.Fatal(err)
			}
			left, err := n.Store.Lookup(t.Context(), keys.Ino, file)
			if err != nil || left.Size != 100 || one.Kept != (left.Key == one.Key) {
				t.Errorf("%s tells of %+v: %+v, %v", name, one, left, err)
			}
		}
	}
	return all
}
