package local_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/kit"
	coordmem "github.com/hmcfs/hmcfs/tests/memcoord"
)

// across is a world of several nodes: each client is at the next node, so that setting and
// getting clients are at different nodes.
type across struct {
	nodes *clustertest.World
	names []members.Name
	last  atomic.Int64
}

func newAcross(t *testing.T, o clustertest.Options, names ...members.Name) *across {
	t.Helper()
	o.Names = names
	if o.Size == 0 {
		o.Size = 256 * devices.MiB
	}
	o.Sim = sim.Params{Mapped: true}
	return &across{nodes: clustertest.New(t, o), names: names}
}

func (w *across) Devices() []devices.Name { return []devices.Name{"sim0", "host"} }
func (w *across) Huge() devices.Name      { return "" }

func (w *across) Join(t testing.TB) heterotest.Peer {
	t.Helper()
	return w.at(t, w.names[int(w.last.Add(1))%len(w.names)])
}

// at returns a client at a node.
func (w *across) at(t testing.TB, name members.Name) *peer {
	t.Helper()
	n := w.nodes.Node(name)
	p := &peer{
		world:  &world{store: n.Store, devs: n.Devices},
		client: local.New(local.Options{Store: n.Store, Keys: cluster.NewKeys(n.Store, n.Cluster)}),
	}
	t.Cleanup(func() { p.Kill(t) })
	return p
}

// Listen receives the events of all nodes.
func (w *across) Listen(t testing.TB) heterotest.Listener {
	t.Helper()
	all := make(chan heterotest.Event, 1<<16)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, len(w.names))
	for _, name := range w.names {
		events := w.nodes.Node(name).Store.Listen()
		go func() {
			defer func() { done <- struct{}{} }()
			defer events.Close()
			for {
				e, err := events.Next(ctx)
				if err != nil {
					return
				}
				all <- heterotest.Event{Kind: string(e.Kind), Key: e.Key, Size: e.Size}
			}
		}()
	}
	t.Cleanup(func() {
		stop()
		for range w.names {
			<-done
		}
	})
	return merged{all}
}

type merged struct{ events chan heterotest.Event }

func (m merged) Next(ctx context.Context) (heterotest.Event, error) {
	select {
	case e := <-m.events:
		return e, nil
	case <-ctx.Done():
		return heterotest.Event{}, ctx.Err()
	}
}

// ofOneNode returns the cases that are only guaranteed within one node: replicas, and that a
// lost object is reported, while elsewhere its key is free.
func ofOneNode() []string {
	return []string{
		"A12", "A14", "A16", "A18", "a replica takes over", "delete takes replicas", "the owner is killed",
		"the owner closes", "memory that goes",
	}
}

// index gives a node an index in a service.
func index(t *testing.T, s *coordmem.Server, name members.Name) keyindex.Index {
	t.Helper()
	client := s.Client()
	lease, err := client.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	x, err := keyindex.New(keyindex.Options{
		Service: client, Self: name,
		Lease: func() (coord.Lease, members.Epoch, <-chan struct{}) { return lease, 1, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(x.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

// indexed returns options with an index for every node.
func indexed(t *testing.T, o clustertest.Options) clustertest.Options {
	t.Helper()
	s := coordmem.NewServer(coordmem.Options{})
	o.Change = func(name members.Name, c *cluster.Options) { c.Index = index(t, s, name) }
	return o
}

// TestAcrossSuite runs the conformance suite with clients at the only node of a cluster. The next
// two tests run it with clients at several nodes.
func TestAcrossSuite(t *testing.T) {
	kit.Check(t)
	heterotest.Run(t, newAcross(t, clustertest.Options{}, "a"))
}

func TestAcrossSuiteWithoutIndex(t *testing.T) {
	kit.Check(t)
	apart := ofOneNode()
	if !kit.Exhaustive() {
		apart = append(apart, "B7 the most keys") // without an index they take longer than all other cases
	}
	heterotest.RunBut(t, newAcross(t, clustertest.Options{}, "a", "b"), apart...)
}

func TestAcrossSuiteWithIndex(t *testing.T) {
	kit.Check(t)
	o := indexed(t, clustertest.Options{Unix: true})
	heterotest.RunBut(t, newAcross(t, o, "a", "b", "c"), ofOneNode()...)
}
