package transport_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

type nullCard struct{ *ram }

func (d *nullCard) Alloc(_ context.Context, n devices.Size) (*devices.Memory, error) {
	return devices.NewMemory(devices.MemorySpec{Device: d, Size: n, Epoch: d.Epoch(), Handle: []byte{}}), nil
}
func (d *nullCard) CopyIn(context.Context, devices.Span, []byte) error  { return nil }
func (d *nullCard) CopyOut(context.Context, []byte, devices.Span) error { return nil }
func (d *nullCard) Fill(context.Context, devices.Span, byte) error      { return nil }
func (d *nullCard) PinHost([]byte) (func(), error)                      { return func() {}, nil }

func BenchmarkNull(b *testing.B) {
	for _, n := range []devices.Size{8 * mib, 16 * mib, 64 * mib} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := &nullCard{newRAM("null")}
			e := newEngine(b, transport.Options{})
			f := memFile(b)
			file := transport.FileSpan("host", f, 0, n).Registrable()
			mem := memoryOn(b, d, n)
			if err := e.Fill(b.Context(), file, 1); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, err := e.Copy(b.Context(), transport.DeviceSpan(mem), file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
