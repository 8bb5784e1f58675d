package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// piece is memory of a client with one blob for each key of a call.
type piece struct {
	heterotest.Memory
	p     *peer
	lists []hetero.DeviceBlobList
	size  int
}

// piece allocates memory for n keys of each bytes, filled from a seed.
func (p *peer) piece(t *testing.T, n, each int, seed uint64) *piece {
	t.Helper()
	m := &piece{Memory: p.Memory(t, "sim0", devices.Size(n*each)), p: p, size: n * each}
	m.Write(t, 0, kit.Bytes(seed, 0, m.size))
	for i := range n {
		m.lists = append(m.lists, hetero.DeviceBlobList{Device: "sim0", Blobs: []hetero.Blob{
			{Memory: m.ID(), Off: devices.Offset(i * each), Size: devices.Size(each)},
		}})
	}
	return m
}

// is fails the test unless the memory has the bytes of a seed.
func (m *piece) is(t *testing.T, seed uint64) {
	t.Helper()
	got := make([]byte, m.size)
	m.Read(t, 0, got)
	if at := kit.DiffAt(got, seed, 0); at >= 0 {
		t.Fatalf("byte %d differs", at)
	}
}

func someKeys(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(prefix, "-", i)
	}
	return keys
}

// eachIndex runs a test with an index and without one.
func eachIndex(t *testing.T, run func(t *testing.T, o clustertest.Options)) {
	t.Run("asking", func(t *testing.T) {
		kit.Check(t)
		run(t, clustertest.Options{})
	})
	t.Run("indexed", func(t *testing.T) {
		kit.Check(t)
		run(t, indexed(t, clustertest.Options{}))
	})
}

// TestA20ReaderNodeGoes: a node that has read a key leaves, and the others continue to read it
// within 10 s.
func TestA20ReaderNodeGoes(t *testing.T) {
	eachIndex(t, func(t *testing.T, o clustertest.Options) {
		w := newAcross(t, o, "a", "b", "c")
		a, b, c := w.at(t, "a"), w.at(t, "b"), w.at(t, "c")
		keys := someKeys("k", 10)
		from := a.piece(t, len(keys), 500, 1)
		well(t)(a.client.DevMSet(t.Context(), keys, from.lists))
		well(t)(b.client.DevMGet(t.Context(), keys, b.piece(t, len(keys), 500, 2).lists, hetero.GetOptions{}))
		w.nodes.Node("b").Leave()
		into := c.piece(t, len(keys), 500, 3)
		soon, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		well(t)(c.client.DevMGet(soon, keys, into.lists, hetero.GetOptions{}))
		into.is(t, 1)
	})
}

// TestC16RacingSets has two nodes set the same keys at once: each key is set once, and all
// clients read the bytes of the one that reports that it has set it.
func TestC16RacingSets(t *testing.T) {
	eachIndex(t, func(t *testing.T, o clustertest.Options) {
		w := newAcross(t, o, "a", "b", "c")
		reader := w.at(t, "c")
		for round := range 5 {
			keys := someKeys(fmt.Sprint("race-", round), 50)
			const each = 100
			var results [2]hetero.Results
			var racers sync.WaitGroup
			for i, p := range []*peer{w.at(t, "a"), w.at(t, "b")} {
				from := p.piece(t, len(keys), each, uint64(10+i))
				racers.Go(func() {
					r, err := p.client.MSetD2H(t.Context(), keys, from.lists, hetero.SetOptions{})
					if err != nil {
						t.Error(err)
					}
					results[i] = r
				})
			}
			racers.Wait()
			raced(t, reader, results, each)
		}
	})
}

// raced fails the test unless each key was set by exactly one of the two, and has its bytes:
// those of seed 10, and 11.
func raced(t *testing.T, reader *peer, results [2]hetero.Results, each int) {
	t.Helper()
	var keys []string
	for _, r := range results[0] {
		keys = append(keys, r.Key)
	}
	into := reader.piece(t, len(keys), each, 3)
	well(t)(reader.client.MGetH2D(t.Context(), keys, into.lists, hetero.GetOptions{}))
	got := make([]byte, into.size)
	into.Read(t, 0, got)
	for i, key := range keys {
		one, two := results[0][i], results[1][i]
		if one.Err != nil || two.Err != nil || one.Skipped == two.Skipped {
			t.Fatalf("key %q: %+v and %+v", key, one, two)
		}
		seed := uint64(10)
		if one.Skipped {
			seed = 11
		}
		if !bytes.Equal(got[i*each:(i+1)*each], kit.Bytes(seed, int64(i*each), each)) {
			t.Fatalf("key %q has not the bytes of who has set it", key)
		}
	}
}

// TestC17SwapBetweenNodes: one client sets, and a client at another node gets and deletes, in
// rounds, so that the same keys are set by turns.
func TestC17SwapBetweenNodes(t *testing.T) {
	eachIndex(t, func(t *testing.T, o clustertest.Options) {
		w := newAcross(t, o, "a", "b")
		users := []*peer{w.at(t, "a"), w.at(t, "b")}
		keys := someKeys("swap", 20)
		for round := range 6 {
			set, get := users[round%2], users[1-round%2]
			from, into := set.piece(t, len(keys), 3000, uint64(round)), get.piece(t, len(keys), 3000, 99)
			well(t)(set.client.MSetD2H(t.Context(), keys, from.lists, hetero.SetOptions{Existing: hetero.ExistingFail}))
			well(t)(get.client.MGetH2D(t.Context(), keys, into.lists, hetero.GetOptions{}))
			into.is(t, uint64(round))
			well(t)(get.client.Delete(t.Context(), keys))
			if there, err := set.client.Exist(t.Context(), keys); err != nil || there[0] {
				t.Fatalf("there after the delete: %v, %v", there, err)
			}
		}
	})
}

// TestE4NodeGoesAndComes: calls that need a node which is gone fail within 10 s, others
// succeed, and all succeed after its restart.
func TestE4NodeGoesAndComes(t *testing.T) {
	eachIndex(t, func(t *testing.T, o clustertest.Options) {
		w := newAcross(t, o, "a", "b")
		a, b := w.at(t, "a"), w.at(t, "b")
		theirs, ours := someKeys("of-a", 5), someKeys("of-b", 5)
		well(t)(a.client.MSetD2H(t.Context(), theirs, a.piece(t, 5, 100, 1).lists, hetero.SetOptions{}))
		well(t)(b.client.MSetD2H(t.Context(), ours, b.piece(t, 5, 100, 2).lists, hetero.SetOptions{}))
		into := b.piece(t, 5, 100, 3)
		well(t)(b.client.MGetH2D(t.Context(), theirs, into.lists, hetero.GetOptions{}))
		w.nodes.Node("a").Leave()
		soon, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		_, err := b.client.MGetH2D(soon, theirs, into.lists, hetero.GetOptions{})
		if soon.Err() != nil || !errors.Is(err, hetero.ErrDisconnected) && !errors.Is(err, hetero.ErrNotFound) {
			t.Errorf("get from a node that has gone: %v", err)
		}
		well(t)(b.client.MGetH2D(soon, ours, into.lists, hetero.GetOptions{}))
		into.is(t, 2)
		w.nodes.Node("a").Join()
		kit.Eventually(t, 20*time.Second, func() bool {
			r, err := b.client.MGetH2D(t.Context(), theirs, into.lists, hetero.GetOptions{})
			return err == nil && len(r.Failed()) == 0
		})
		into.is(t, 1)
	})
}

// TestE6InfoAcross: information about keys and publications of another node, and contents of
// all byte values.
func TestE6InfoAcross(t *testing.T) {
	eachIndex(t, func(t *testing.T, o clustertest.Options) {
		w := newAcross(t, o, "a", "b")
		a, b := w.at(t, "a"), w.at(t, "b")
		from, into := a.piece(t, 1, 512, 0), b.piece(t, 1, 512, 9)
		all := make([]byte, 512)
		for i := range all {
			all[i] = byte(i)
		}
		from.Write(t, 0, all)
		well(t)(a.client.DevMSet(t.Context(), []string{"set"}, from.lists))
		given, err := a.client.DevPublish(t.Context(), []string{"given"}, from.lists)
		if err != nil {
			t.Fatal(err)
		}
		for key, published := range map[string]bool{"set": false, "given": true} {
			info, failure := b.client.GetMetaInfo(t.Context(), []string{key, "nobody"}, published)
			if failure != nil || len(info) != 2 || info[0].Err != nil || info[0].Size != 512 || info[0].Device != "sim0" || len(info[0].Blobs) != 1 {
				t.Errorf("%s: %+v, %v", key, info, failure)
			}
			if !errors.Is(info[1].Err, hetero.ErrNotFound) {
				t.Errorf("an unknown key: %v", info[1].Err)
			}
		}
		got, err := b.client.DevSubscribe(t.Context(), []string{"given"}, into.lists, hetero.SubscribeOptions{})
		if err == nil {
			err = errors.Join(got[0].Wait(t.Context()), given[0].Wait(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		have := make([]byte, 512)
		into.Read(t, 0, have)
		if !bytes.Equal(all, have) {
			t.Error("other bytes")
		}
	})
}

// TestReplaceAcross: a key of another node is replaced, by users with permission.
func TestReplaceAcross(t *testing.T) {
	eachIndex(t, func(t *testing.T, o clustertest.Options) {
		w := newAcross(t, o, "a", "b")
		a, b := w.at(t, "a"), w.at(t, "b")
		keys := someKeys("k", 3)
		well(t)(a.client.MSetD2H(t.Context(), keys, a.piece(t, 3, 10, 1).lists, hetero.SetOptions{}))
		well(t)(b.client.MSetD2H(t.Context(), keys, b.piece(t, 3, 10, 2).lists, hetero.SetOptions{Existing: hetero.ExistingReplace}))
		into := a.piece(t, 3, 10, 3)
		well(t)(a.client.MGetH2D(t.Context(), keys, into.lists, hetero.GetOptions{}))
		into.is(t, 2)
		well(t)(a.client.Expire(t.Context(), keys, time.Second))
		kit.Eventually(t, 20*time.Second, func() bool {
			there, err := a.client.Exist(t.Context(), keys)
			return err == nil && !there[0] && !there[1] && !there[2]
		})
	})
}

// contest is a set of publications that several nodes want.
type contest struct {
	keys     []string
	each     int
	received []atomic.Int32
}

// subscribe tries to receive some of them, by index, one after the other.
func (c *contest) subscribe(t *testing.T, p *peer, some []int) {
	into := p.piece(t, len(c.keys), c.each, 7)
	o := hetero.SubscribeOptions{Timeout: 100 * time.Millisecond}
	for _, i := range some {
		f, err := p.client.DevSubscribe(t.Context(), c.keys[i:i+1], into.lists[i:i+1], o)
		if err != nil || f[0].Wait(t.Context()) != nil {
			continue
		}
		got := make([]byte, c.each)
		into.Read(t, devices.Offset(i*c.each), got)
		if kit.DiffAt(got, 1, int64(i*c.each)) >= 0 {
			t.Errorf("key %d: other bytes", i)
		}
		c.received[i].Add(1)
	}
}

// left returns the indices of those that have not been received.
func (c *contest) left() (places []int) {
	for i := range c.received {
		if c.received[i].Load() == 0 {
			places = append(places, i)
		}
	}
	return places
}

// TestHandOverWhileNodesGo has two nodes contend for the publications of a third one, while one
// of the two leaves and returns all the time: every publication is received at most once, and
// its publisher is notified.
func TestHandOverWhileNodesGo(t *testing.T) {
	eachIndex(t, func(t *testing.T, o clustertest.Options) {
		w := newAcross(t, o, "a", "b", "c")
		c := &contest{keys: someKeys("once", 60), each: 64 << 10, received: make([]atomic.Int32, 60)}
		a := w.at(t, "a")
		given, err := a.client.DevPublish(t.Context(), c.keys, a.piece(t, len(c.keys), c.each, 1).lists)
		if err != nil {
			t.Fatal(err)
		}
		up := c.left()
		down := slices.Clone(up)
		slices.Reverse(down)
		var users sync.WaitGroup
		users.Go(func() { c.subscribe(t, w.at(t, "b"), up) })
		for range 3 {
			c.subscribe(t, w.at(t, "c"), down[:40])
			w.nodes.Node("c").Leave()
			w.nodes.Node("c").Join()
		}
		users.Wait()
		c.subscribe(t, w.at(t, "b"), c.left())
		for i := range c.keys {
			switch n := c.received[i].Load(); n {
			case 0:
			case 1:
				if err := given[i].Wait(t.Context()); err != nil {
					t.Errorf("key %d: its publisher hears %v", i, err)
				}
			default:
				t.Errorf("key %d was received %d times", i, n)
			}
		}
		if left := len(c.left()); left > len(c.keys)/2 {
			t.Errorf("%d were received by nobody", left)
		}
	})
}
