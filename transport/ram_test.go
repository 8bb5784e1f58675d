package transport_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
)

// errInjected is the error of a ram device.
var errInjected = errors.New("injected")

// ram is a test device of ordinary Go memory. Its fields are set before its first
// use.
type ram struct {
	name devices.Name
	// numa is its node plus one, so that zero means unknown.
	numa int
	// before is called at the start of every operation that moves bytes;
	// its error fails the operation after half of its bytes.
	before func(op string) error
	epoch  atomic.Uint64
	closed atomic.Bool
}

func newRAM(name devices.Name) *ram { return &ram{name: name} }

func (d *ram) Info() devices.Info {
	return devices.Info{Name: d.name, Family: "ram", Total: devices.GiB, Align: 1, NUMA: d.numa - 1}
}

func (d *ram) Epoch() devices.Epoch { return devices.Epoch(d.epoch.Load() + 1) }

func (d *ram) Alloc(_ context.Context, n devices.Size) (*devices.Memory, error) {
	return devices.NewMemory(devices.MemorySpec{Device: d, Size: n, Epoch: d.Epoch(), Handle: make([]byte, n)}), nil
}

func (d *ram) Usage() (devices.Usage, error) { return devices.Usage{Total: devices.GiB}, nil }

func (d *ram) Close() error { d.closed.Store(true); return nil }

// bytesOf returns the span's bytes of any ram device.
func bytesOf(s devices.Span) []byte {
	all, ok := s.Mem.Handle().([]byte)
	if !ok {
		panic(fmt.Sprintf("memory of %T in a test of ram", s.Mem.Device()))
	}
	return all[s.Off:s.End()]
}

// move implements every transfer of the device.
func (d *ram) move(ctx context.Context, op string, dst, src []byte) error {
	if len(dst) != len(src) {
		return devices.ErrRange
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.before != nil {
		if err := d.before(op); err != nil {
			copy(dst, src[:len(src)/2])
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	copy(dst, src)
	return nil
}

func (d *ram) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	if err := dst.Check(dst.Mem.Device()); err != nil {
		return err
	}
	return d.move(ctx, "in", bytesOf(dst), src)
}

func (d *ram) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	if err := src.Check(src.Mem.Device()); err != nil {
		return err
	}
	return d.move(ctx, "out", dst, bytesOf(src))
}

func (d *ram) Copy(ctx context.Context, dst, src devices.Span) error {
	if err := errors.Join(dst.Check(dst.Mem.Device()), src.Check(src.Mem.Device())); err != nil {
		return err
	}
	return d.move(ctx, "copy", bytesOf(dst), bytesOf(src))
}

func (d *ram) Fill(ctx context.Context, dst devices.Span, value byte) error {
	if err := dst.Check(dst.Mem.Device()); err != nil {
		return err
	}
	src := make([]byte, dst.Len)
	for i := range src {
		src[i] = value
	}
	return d.move(ctx, "fill", bytesOf(dst), src)
}

// mappedRAM is ram that can be mapped.
type mappedRAM struct {
	*ram
	views atomic.Int64
}

func newMappedRAM(name devices.Name) *mappedRAM { return &mappedRAM{ram: newRAM(name)} }

func (d *mappedRAM) Alloc(_ context.Context, n devices.Size) (*devices.Memory, error) {
	return devices.NewMemory(devices.MemorySpec{Device: d, Size: n, Epoch: d.Epoch(), Handle: make([]byte, n)}), nil
}

func (d *mappedRAM) MapHost(_ context.Context, s devices.Span, _ devices.Access) (devices.View, error) {
	if d.before != nil {
		if err := d.before("map"); err != nil {
			return devices.View{}, fmt.Errorf("%s: %w", d.name, err)
		}
	}
	d.views.Add(1)
	return devices.View{Bytes: bytesOf(s), Release: func() { d.views.Add(-1) }}, nil
}

// peerRAM is ram that copies directly from other ram.
type peerRAM struct{ *ram }

func newPeerRAM(name devices.Name) *peerRAM { return &peerRAM{ram: newRAM(name)} }

func (d *peerRAM) Alloc(_ context.Context, n devices.Size) (*devices.Memory, error) {
	return devices.NewMemory(devices.MemorySpec{Device: d, Size: n, Epoch: d.Epoch(), Handle: make([]byte, n)}), nil
}

func (d *peerRAM) CopyPeer(ctx context.Context, dst, src devices.Span) error {
	if _, ok := src.Mem.Handle().([]byte); !ok {
		return devices.ErrUnsupported
	}
	return d.move(ctx, "peer", bytesOf(dst), bytesOf(src))
}
