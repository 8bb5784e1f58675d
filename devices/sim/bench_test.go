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
			b.Run(spec+"/in/"+n.String(), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := dev.CopyIn(b.Context(), mem.All(), buf); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(spec+"/out/"+n.String(), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := dev.CopyOut(b.Context(), buf, mem.All()); err != nil {
						b.Fatal(err)
					}
				}
			})
			if err := mem.Release(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
