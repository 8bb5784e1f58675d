package cluster_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// lasting are worlds whose sessions a later daemon continues, if they come back within a time.
func lasting(absent time.Duration) clustertest.Options {
	return clustertest.Options{Store: func(_ members.Name, o *objects.Options) { o.Keeper, o.Absent = &keep.Store{}, absent }}
}

// offered publishes a file on a node.
func offered(t *testing.T, n *clustertest.Node, key string) {
	t.Helper()
	n.File("sim0", "of "+key, []byte("what is published"))
	err := n.Store.Rename(t.Context(), metadata.Rename{From: n.Dir("sim0"), Name: "of " + key, To: metadata.PublishIno, NewName: key})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReceivedElsewhere has a session receive a publication of another node, and ask for that again, as after the death of the
// daemon before it was answered.
func TestReceivedElsewhere(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, lasting(0))
	a, b := w.Node("a"), w.Node("b")
	h := a.Store.NewSession(clustertest.Root(), "a session")
	ctx := objects.WithCall(t.Context(), 5, false)
	for _, key := range []string{"one", "two"} {
		offered(t, b, key)
		r, err := a.Cluster.ClaimKey(ctx, h, key, true)
		if err != nil {
			t.Fatal(err)
		}
		if key == "one" {
			err = r.Take(ctx)
		} else {
			r.GiveBack(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other := a.Store.NewSession(clustertest.Root(), "another session")
	for what, c := range map[string]struct {
		of    *objects.Holder
		call  uint64
		again bool
		key   string
		want  bool
	}{
		"the same call":        {h, 5, true, "one", true},
		"a new call":           {h, 5, false, "one", false},
		"another call":         {h, 6, true, "one", false},
		"another session's":    {other, 5, true, "one", false},
		"for a key given back": {h, 5, true, "two", false},
	} {
		got, err := a.Cluster.ReceivedKey(objects.WithCall(t.Context(), c.call, c.again), c.of, c.key)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	for _, h := range []*objects.Holder{h, other} {
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestReceivedByTheDead asks a node, in the order in which requests of a daemon that has died and of the next one can arrive, what
// the first has received.
func TestReceivedByTheDead(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, lasting(time.Minute))
	a := w.Node("a")
	r := newRogue(t, w, map[rpc.Method]rpc.Handler{
		proto.MethodHaveKeys: answer(&proto.HaveKeysAnswer{There: []bool{false}}),
	})
	r.visits(a)
	const dead, next = 1, 2
	id := func(daemon, claim byte) (id [16]byte) {
		id[0], id[8] = daemon, claim
		return id
	}
	claim := func(daemon, n byte) error {
		return r.asks(a, proto.MethodClaim, &proto.ClaimAsk{Key: "k", ID: id(daemon, n)}, &proto.ClaimAnswer{})
	}
	take := func(daemon, n, call byte) error {
		return r.asks(a, proto.MethodTake, &proto.TakeAsk{ID: id(daemon, n), Received: true, Call: [16]byte{call}}, nil)
	}
	received := func(call byte, want bool) {
		t.Helper()
		var out proto.ReceivedAnswer
		err := r.asks(a, proto.MethodReceived, &proto.ReceivedAsk{Key: "k", Call: [16]byte{call}, Claims: [8]byte{next}}, &out)
		if err != nil || out.Received != want {
			t.Errorf("call %d: %v, %v", call, out.Received, err)
		}
	}
	fine := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	offered(t, a, "k")
	fine(claim(dead, 1))
	received(1, false) // which ends its claim
	if err := take(dead, 1, 1); err == nil {
		t.Error("what the next daemon was told is not received is received")
	}
	fine(claim(next, 1))
	received(2, false) // and leaves those of the daemon that asks
	fine(take(next, 1, 2))
	received(2, true)
	received(1, false)
	fine(take(next, 1, 2))

	// A request that this daemon does not know, but the one before has carried out.
	if err := take(dead, 7, 3); err == nil {
		t.Error("an unknown claim is received")
	}
	offered(t, a, "l")
	h := a.Store.NewHolder(clustertest.Root())
	c, err := h.Claim(t.Context(), "l", false)
	if err != nil {
		t.Fatal(err)
	}
	fine(c.TakeFor(t.Context(), objects.CallID{3}))
	fine(take(dead, 7, 3))
	received(3, true)
	fine(errors.Join(h.Close(t.Context()), r.comm.Disconnect(rankOf("a"))))
	kit.Eventually(t, 10*time.Second, func() bool { return used(t, a, "sim0") == 0 })
}
