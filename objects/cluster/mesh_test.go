package cluster_test

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/conformance/treetest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestOneTree compares a store, a mesh of that node alone, and the same store through the mesh
// of another node.
func TestOneTree(t *testing.T) {
	kit.Check(t)
	for _, device := range []string{"sim0", "host"} {
		t.Run(device, func(t *testing.T) {
			for seed := range uint64(kit.Rounds(3, 10, 200)) {
				w := clustertest.New(t, clustertest.Options{})
				a, b := w.Node("a"), w.Node("b")
				far := cluster.NewMesh(a.Store, a.Cluster)
				top, err := far.NodeIno("b")
				if err != nil {
					t.Fatal(err)
				}
				trees := []treetest.Rooted{
					{Name: "the store", Tree: objects.Local{Store: b.Store}},
					{Name: "a mesh of one", Tree: cluster.NewMesh(b.Store, nil)},
					{Name: "another node's mesh", Tree: far},
				}
				for i := range trees {
					name := fmt.Sprint("tree", i)
					made, failure := b.Store.Create(t.Context(), b.Dir(device), name, metadata.Node{Mode: metadata.TypeDir | 0o755})
					if failure != nil {
						t.Fatal(failure)
					}
					trees[i].Root = made.Ino
				}
				dir, err := far.Lookup(t.Context(), objects.Caller{}, top, device)
				if err == nil {
					dir, err = far.Lookup(t.Context(), objects.Caller{}, dir.Ino, "tree2")
				}
				if err != nil {
					t.Fatal(err)
				}
				trees[2].Root = dir.Ino
				treetest.Compare(t, trees, seed, 600)
			}
		})
	}
}
