package cluster_test

import (
	"context"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// BenchmarkStat requests attributes that are not cached.
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

// BenchmarkRead reads 1 MiB of another node into memory of this process.
func BenchmarkRead(b *testing.B) {
	bench(b, func(b *testing.B, w *clustertest.World, device string) {
		b.Helper()
		content := kit.Bytes(1, 0, 16<<20)
		f, err := w.Peer("a", "b").Open(b.Context(), clustertest.Root(), w.Node("b").File(device, "w", content), objects.PermRead)
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

const (
	benchSize   = 128 << 20
	benchDevice = 512 * devices.MiB
)

// pair is a file at either end of a copy.
type pair struct{ dst, src cluster.End }

func (p *pair) close(b *testing.B) {
	b.Helper()
	for _, e := range []cluster.End{p.dst, p.src} {
		var err error
		if e.Remote != nil {
			err = e.Remote.Close(b.Context())
		} else {
			err = e.Local.Close(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// ends returns a file of a, and one of b as opened by a.
func ends(b *testing.B, w *clustertest.World, device string) (here, there cluster.End) {
	b.Helper()
	f, err := w.Peer("a", "b").Open(b.Context(), clustertest.Root(), w.Node("b").File(device, "w", kit.Bytes(1, 0, benchSize)), both)
	if err != nil {
		b.Fatal(err)
	}
	local, err := w.Node("a").Store.OpenFile(b.Context(), w.Node("a").File(device, "w", kit.Bytes(2, 0, benchSize)))
	if err != nil {
		b.Fatal(err)
	}
	return cluster.End{Local: local}, cluster.End{Remote: f}
}

func (p *pair) run(b *testing.B, move func(ctx context.Context, dst, src cluster.End, n uint64) (uint64, error)) {
	b.Helper()
	defer p.close(b)
	b.SetBytes(benchSize)
	for b.Loop() {
		if n, err := move(b.Context(), p.dst, p.src, benchSize); err != nil || n != benchSize {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkCopyIn copies a file of another node to a local device.
func BenchmarkCopyIn(b *testing.B) {
	bench(b, func(b *testing.B, w *clustertest.World, device string) {
		b.Helper()
		here, there := ends(b, w, device)
		(&pair{dst: here, src: there}).run(b, w.Node("a").Cluster.Copy)
	})
}

// BenchmarkCopyOut copies a local file to a device of another node.
func BenchmarkCopyOut(b *testing.B) {
	bench(b, func(b *testing.B, w *clustertest.World, device string) {
		b.Helper()
		here, there := ends(b, w, device)
		(&pair{dst: there, src: here}).run(b, w.Node("a").Cluster.Copy)
	})
}

// BenchmarkLocal copies between two devices of one node, for comparison.
func BenchmarkLocal(b *testing.B) {
	for _, devices := range [][2]string{{"host", "host"}, {"host", "sim0"}, {"sim0", "host"}} {
		b.Run(devices[0]+"-"+devices[1], func(b *testing.B) {
			w := clustertest.New(b, clustertest.Options{Size: benchDevice})
			n := w.Node("a")
			var files [2]*objects.File
			for i, device := range devices {
				f, err := n.Store.OpenFile(b.Context(), n.File(device, string(rune('x'+i)), kit.Bytes(1, 0, benchSize)))
				if err != nil {
					b.Fatal(err)
				}
				files[i] = f
			}
			p := &pair{src: cluster.End{Local: files[0]}, dst: cluster.End{Local: files[1]}}
			p.run(b, func(ctx context.Context, dst, src cluster.End, size uint64) (uint64, error) {
				return n.Store.CopyRange(ctx, objects.CopyRange{Dst: dst.Local, Src: src.Local, N: size})
			})
		})
	}
}

func bench(b *testing.B, fn func(b *testing.B, w *clustertest.World, device string)) {
	b.Helper()
	for _, way := range []string{"tcp", "shm"} {
		for _, device := range []string{"host", "sim0"} {
			b.Run(way+"-"+device, func(b *testing.B) {
				fn(b, clustertest.New(b, clustertest.Options{Size: benchDevice, Unix: way == "shm"}), device)
			})
		}
	}
}
