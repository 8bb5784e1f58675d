package cluster_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// BenchmarkStat asks for attributes that are not remembered.
func BenchmarkStat(b *testing.B) {
	w := clustertest.New(b, clustertest.Options{})
	dir := w.Node("b").Dir("host")
	w.Node("b").File("host", "w", []byte("x"))
	n := w.Peer("a", "b")
	for b.Loop() {
		n.Forget()
		if _, err := n.Lookup(b.Context(), clustertest.Root(), dir, "w"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads 1 MiB of another node into bytes of ours.
func BenchmarkRead(b *testing.B) {
	bench(b, func(b *testing.B, w *clustertest.World, device string) {
		b.Helper()
		content := kit.Bytes(1, 0, 16<<20)
		f, err := w.Peer("a", "b").Open(b.Context(), clustertest.Root(), w.Node("b").File(device, "w", content), cluster.Read)
		if err != nil {
			b.Fatal(err)
		}
		p := make([]byte, 1<<20)
		b.SetBytes(int64(len(p)))
		for off := uint64(0); b.Loop(); off = (off + 1<<20) % (16 << 20) {
			if n, err := f.Peek(b.Context(), p, off); err != nil || n != len(p) {
				b.Fatal(n, err)
			}
		}
		if err := f.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
}

const benchSize = 128 << 20

// BenchmarkCopy copies a file of another node to a device of ours, and back.
func BenchmarkCopy(b *testing.B) {
	for _, out := range []bool{false, true} {
		name := map[bool]string{false: "in", true: "out"}[out]
		b.Run(name, func(b *testing.B) {
			bench(b, func(b *testing.B, w *clustertest.World, device string) {
				b.Helper()
				there, here := w.Node("b").File(device, "w", kit.Bytes(1, 0, benchSize)), w.Node("a").File(device, "w", kit.Bytes(2, 0, benchSize))
				f, err := w.Peer("a", "b").Open(b.Context(), clustertest.Root(), there, both)
				if err != nil {
					b.Fatal(err)
				}
				local, err := w.Node("a").Store.OpenFile(b.Context(), here)
				if err != nil {
					b.Fatal(err)
				}
				dst, src := cluster.End{Local: local}, cluster.End{Remote: f}
				if out {
					dst, src = src, dst
				}
				b.SetBytes(benchSize)
				for b.Loop() {
					if n, err := w.Node("a").Cluster.Copy(b.Context(), dst, src, benchSize); err != nil || n != benchSize {
						b.Fatal(n, err)
					}
				}
				if err := f.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := local.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkLocal is BenchmarkCopy inside one node, for comparison.
func BenchmarkLocal(b *testing.B) {
	w := clustertest.New(b, clustertest.Options{Size: 512 * devices.MiB})
	n := w.Node("a")
	for _, pair := range [][2]string{{"host", "host"}, {"host", "sim0"}, {"sim0", "host"}} {
		b.Run(pair[0]+"-"+pair[1], func(b *testing.B) {
			src, dst := n.File(pair[0], "src", kit.Bytes(1, 0, benchSize)), n.File(pair[1], "dst", kit.Bytes(2, 0, benchSize))
			from, err := n.Store.OpenFile(b.Context(), src)
			if err != nil {
				b.Fatal(err)
			}
			to, err := n.Store.OpenFile(b.Context(), dst)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(benchSize)
			for b.Loop() {
				if k, err := n.Store.CopyRange(b.Context(), objects.CopyRange{Dst: to, Src: from, N: benchSize}); err != nil || k != benchSize {
					b.Fatal(k, err)
				}
			}
			for _, f := range []*objects.File{from, to} {
				if err := f.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			for i, name := range []string{"src", "dst"} {
				if err := n.Store.Unlink(b.Context(), n.Dir(pair[i]), name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func bench(b *testing.B, fn func(b *testing.B, w *clustertest.World, device string)) {
	b.Helper()
	for _, way := range []string{"tcp", "shm"} {
		for _, device := range []string{"host", "sim0"} {
			b.Run(way+"-"+device, func(b *testing.B) {
				fn(b, clustertest.New(b, clustertest.Options{Size: 512 * devices.MiB, Unix: way == "shm"}), device)
			})
		}
	}
}
