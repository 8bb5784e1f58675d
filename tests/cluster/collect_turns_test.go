package cluster

import (
	"encoding/binary"
	"os"
	"sync"
	"testing"
)

// TestCollectivesSideBySide lets clients of two nodes run collectives on the same files
// concurrently, naming them in all orders: the collectives are serialized, and none waits
// forever.
func TestCollectivesSideBySide(t *testing.T) {
	const count, rounds = 300_001, 4
	_, nodes := newNodes(t, worldOptions{machines: 2})
	a, b := nodes[0], nodes[1]
	files := []string{a.Path("host", "x"), a.Path("sim0", "x"), b.Path("host", "x")}
	for rank, path := range files {
		must(t, os.WriteFile(path, numbers(rank, count), 0o644))
	}
	// The names of the files at each node, in a different order for each.
	at := [][]string{
		{a.Path("host", "x"), a.Path("sim0", "x"), a.at("b", "host", "x")},
		{a.at("b", "host", "x"), a.Path("sim0", "x"), a.Path("host", "x")},
		{b.Path("host", "x"), b.at("a", "host", "x"), b.at("a", "sim0", "x")},
		{b.at("a", "sim0", "x"), b.Path("host", "x"), b.at("a", "host", "x")},
	}
	var clients sync.WaitGroup
	for i, names := range at {
		asks := []*node{a, a, b, b}[i]
		clients.Go(func() {
			for range rounds {
				if _, err := asks.Run(append([]string{"allreduce", "--dtype", "i32"}, names...)...); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	if err := soon(t, "the collectives", func() error { clients.Wait(); return nil }); err != nil {
		t.Fatal(err)
	}
	// The first collective computes the sum, and each further one triples it.
	want := sums(len(files), count)
	for i := range count {
		sum := binary.LittleEndian.Uint32(want[4*i:])
		for range len(at)*rounds - 1 {
			sum *= 3
		}
		binary.LittleEndian.PutUint32(want[4*i:], sum)
	}
	for _, path := range files {
		same(t, path, want)
	}
}
