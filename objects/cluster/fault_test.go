package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// slowly returns options for a world whose simulated devices take a second for 32 MiB.
func slowly(o clustertest.Options) clustertest.Options {
	o.Sim = sim.Params{Bandwidth: 32 * devices.MiB}
	return o
}

// TestNodeGoesInCopy ends a node during a copy: the copy fails, or is short, and the bytes
// that it reports as copied are in place. No byte is wrong.
func TestNodeGoesInCopy(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		for _, pair := range [][2]members.Name{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "b"}} {
			for _, device := range []string{"sim0", "host"} {
				t.Run(fmt.Sprintf("%s-%s-%s", pair[0], pair[1], device), func(t *testing.T) {
					kit.Check(t)
					slow := slowly(o)
					slow.Names = []members.Name{"a", "b", "c"}
					w := clustertest.New(t, slow)
					content := kit.Bytes(5, 0, 12<<20)
					src := w.Node(pair[0]).File("sim0", "src", content)
					dst := w.Node(pair[1]).File(device, "dst", nil)
					to, from := end(t, w, pair[1], dst, 0), end(t, w, pair[0], src, 0)
					type result struct {
						n   uint64
						err error
					}
					done := make(chan result, 1)
					go func() {
						n, err := w.Node("a").Cluster.Copy(context.Background(), to, from, uint64(len(content)))
						done <- result{n, err}
					}()
					kit.Eventually(t, 20*time.Second, func() bool { return moving(w) })
					w.Node("b").Leave()
					r := <-done
					if r.err == nil && r.n == uint64(len(content)) {
						t.Log("the copy was faster")
					}
					if r.err != nil && !errors.Is(r.err, cluster.ErrUnreachable) {
						t.Errorf("the copy: %d, %v", r.n, r.err)
					}
					got := w.Node(pair[1]).Content(dst)
					if !bytes.HasPrefix(content, got) || uint64(len(got)) < r.n {
						t.Errorf("%d bytes told, %d are there; differ at %d", r.n, len(got), kit.FirstDiff(got, content[:min(len(got), len(content))]))
					}
				})
			}
		}
	})
}

// moving reports whether a node has started to move the bytes of a copy.
func moving(w *clustertest.World) bool {
	for _, name := range []members.Name{"a", "b", "c"} {
		for _, s := range w.Node(name).Engine.Stats().Paths {
			if s.Device == "sim0" && s.Path == "d2h" && s.Operations > 0 {
				return true
			}
		}
	}
	return false
}

// TestSlowNode has one node that moves bytes slowly: it answers requests, and the others do
// not wait.
func TestSlowNode(t *testing.T) {
	kit.Check(t)
	o := clustertest.Options{Names: []members.Name{"a", "b", "c"}, Sim: sim.Params{Bandwidth: devices.MiB}}
	w := clustertest.New(t, o)
	content := kit.Bytes(5, 0, 100_000)
	slow := w.Node("b").File("sim0", "w", content)
	quick := w.Node("b").File("host", "w", content)
	far := w.Node("c").File("host", "w", content)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	f := open(t, w.Peer("a", "b"), slow)
	for range 8 {
		readers.Go(func() {
			p := make([]byte, len(content))
			for ctx.Err() == nil {
				if n, err := f.Peek(ctx, p, 0); err == nil && !bytes.Equal(p[:n], content) {
					t.Errorf("wrong bytes of the slow device, at %d", kit.FirstDiff(p[:n], content))
				}
			}
		})
	}
	for range 20 {
		if got := read(t, open(t, w.Peer("a", "c"), far), len(content)); !bytes.Equal(got, content) {
			t.Error("wrong bytes of another node")
		}
		if got := read(t, open(t, w.Peer("a", "b"), quick), len(content)); !bytes.Equal(got, content) {
			t.Error("wrong bytes of another device")
		}
		if _, err := w.Peer("a", "b").StatFS(t.Context(), clustertest.Root(), metadata.RootIno); err != nil {
			t.Error(err)
		}
	}
	cancel()
	readers.Wait()
}

// TestStorm writes and reads files of another node with several users of that node, while
// sessions break on both ends. Data reported as written is in place, and nothing else is
// anywhere.
func TestStorm(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		w := clustertest.New(t, o)
		b := w.Peer("a", "b")
		const users = 4
		rounds := kit.Rounds(12, 25, 60)
		ctx, cancel := context.WithCancel(t.Context())
		var breaker, writers sync.WaitGroup
		var served atomic.Int64
		var files []*cluster.File
		for user := range users {
			device := []string{"host", "sim0"}[user%2]
			ino := w.Node("b").File(device, fmt.Sprintf("w%d", user), nil)
			files = append(files, open(t, b, ino))
		}
		breaker.Go(func() {
			rng, last := rand.New(rand.NewPCG(seed, 99)), int64(0)
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(10+rng.IntN(60)) * time.Millisecond):
				}
				// If a call takes longer than that, none would ever complete.
				if now := served.Load(); now > last {
					last = now
					name := members.Name([]string{"a", "b"}[rng.IntN(2)])
					_ = w.Node(name).Cluster.Break(otherOf(name)) // there may be no session
				}
			}
		})
		for user, f := range files {
			writers.Go(func() { storm(t, w, f, rand.New(rand.NewPCG(seed, uint64(user))), rounds, &served) })
		}
		writers.Wait()
		cancel()
		breaker.Wait()
	})
}

// pause waits a little before a call that has failed is made again.
func pause(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(2 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// stormSize is the size of a file, in bytes, that storm writes.
const stormSize = 3 << 20

// storm writes random ranges and reads them back. A range whose write failed may be old, new
// or a mix, until it is written again. Successful calls are counted in served.
func storm(t *testing.T, w *clustertest.World, f *cluster.File, rng *rand.Rand, rounds int, served *atomic.Int64) {
	t.Helper()
	want := make([]byte, stormSize)
	failed := 0
	for i := range rounds {
		off := rng.IntN(stormSize - 1)
		p := kit.Bytes(rng.Uint64(), 0, 1+rng.IntN(stormSize-off))
		for {
			n, err := f.WriteAt(t.Context(), p, objects.Write{Off: uint64(off)})
			if err == nil && n == len(p) {
				served.Add(1)
				break
			}
			if !errors.Is(err, cluster.ErrUnreachable) {
				t.Errorf("round %d, write: %d of %d, %v", i, n, len(p), err)
				return
			}
			failed++
			pause(t)
		}
		copy(want[off:], p)
		got := make([]byte, len(p))
		for {
			n, err := f.Peek(t.Context(), got, uint64(off))
			if err == nil {
				if !bytes.Equal(got[:n], p) {
					t.Errorf("round %d: %d bytes at %d, %d of them; differ at %d", i, len(p), off, n, kit.FirstDiff(got[:n], p))
					return
				}
				served.Add(1)
				break
			}
			if !errors.Is(err, cluster.ErrUnreachable) {
				t.Errorf("round %d, read: %v", i, err)
				return
			}
			failed++
			pause(t)
		}
	}
	got := w.Node("b").Content(f.Ino())
	if !bytes.Equal(got, want[:len(got)]) {
		t.Errorf("at the end: differ at %d", kit.FirstDiff(got, want[:len(got)]))
	}
	t.Logf("%d calls failed", failed)
}

// TestCancel cancels calls: the following ones complete.
func TestCancel(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		w := clustertest.New(t, slowly(o))
		content := kit.Bytes(5, 0, 4<<20)
		ino := w.Node("b").File("sim0", "w", content)
		f := open(t, w.Peer("a", "b"), ino)
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			p := make([]byte, len(content))
			n, err := f.Peek(ctx, p, 0)
			cancel()
			if err == nil && !bytes.Equal(p[:n], content) {
				t.Fatalf("differ at %d", kit.FirstDiff(p[:n], content))
			}
		}
		if got := read(t, f, len(content)); !bytes.Equal(got, content) {
			t.Errorf("differ at %d", kit.FirstDiff(got, content))
		}
	})
}
