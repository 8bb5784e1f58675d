package sim

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

func BenchmarkCopy(b *testing.B) {
	for _, spec := range []string{"sim:0", "sim:0,bandwidth=5GB/s", "sim:0,bandwidth=20GB/s"} {
		for _, n := range []devices.Size{64 * devices.KiB, devices.MiB, 16 * devices.MiB} {
			dev := open(b, spec)
			mem, err := dev.Alloc(b.Context(), n)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, n)
			benchCopy(b, spec+"/in/"+n.String(), n, func() error { return dev.CopyIn(b.Context(), mem.All(), buf) })
			benchCopy(b, spec+"/out/"+n.String(), n, func() error { return dev.CopyOut(b.Context(), buf, mem.All()) })
			if err := mem.Release(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// benchCopy measures a copy of n bytes.
func benchCopy(b *testing.B, name string, n devices.Size, copyOnce func() error) {
	b.Helper()
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(n))
		for b.Loop() {
			if err := copyOnce(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
