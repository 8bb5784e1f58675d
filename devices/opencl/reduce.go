package opencl

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// reduction describes the work of a kernel: the elements at dst and src are combined into
// dst.
type reduction struct {
	dst, src place
	t        elem.Type
	op       elem.Op
}

// at returns the part of the reduction from offset off on.
func (r reduction) at(off devices.Size) reduction {
	r.dst, r.src = r.dst.at(off), r.src.at(off)
	return r
}

// beginReduce checks the arguments of a reduction, and enters. device.Reduce refuses a
// device that is the host's processor: the host's own loops are faster than compiling
// others.
func (d *device) beginReduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) (leave func(), err error) {
	if err := devices.CheckAligned(d.self, dst, src, t, op); err != nil {
		return nil, err
	}
	return d.life.Enter(ctx, d.self)
}

// Reduce combines elements with kernels.
func (d *device) Reduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) error {
	leave, err := d.beginReduce(ctx, dst, src, t, op)
	if err != nil {
		return err
	}
	defer leave()
	if d.entry.isHost() {
		return fmt.Errorf("%s is the host's own processor: %w", d.info.Name, devices.ErrUnsupported)
	}
	r := reduction{dst: d.place(dst), src: d.place(src), t: t, op: op}
	return moves.Pieces(ctx, dst.Len, d.piece(), func(off, n devices.Size) error {
		return d.reduce(r.at(off), n)
	})
}

// Reduce combines elements, by the device or by the host, as Copy does.
func (d *mappedDevice) Reduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) error {
	leave, err := d.beginReduce(ctx, dst, src, t, op)
	if err != nil {
		return err
	}
	defer leave()
	to, from := d.buffer(dst), d.buffer(src)
	r := reduction{dst: d.place(dst), src: d.place(src), t: t, op: op}
	return moves.Pieces(ctx, dst.Len, sharedPiece, func(off, n devices.Size) error {
		command := func() error { return d.reduce(r.at(off), n) }
		host := func() error {
			a := to.bytes(devices.Range{Off: dst.Off + devices.Offset(off), Len: n})
			b := from.bytes(devices.Range{Off: src.Off + devices.Offset(off), Len: n})
			return devices.CombinePieces(ctx, a, b, t, op)
		}
		err := d.either(ctx, command, host, to, from)
		if errors.Is(err, devices.ErrUnsupported) {
			return d.either(ctx, nil, host, to, from)
		}
		return err
	})
}

// reduce combines n bytes with a kernel and returns when that is complete.
func (d *device) reduce(r reduction, n devices.Size) error {
	event, err := d.startReduce(d.within, r, n)
	return d.api.await(d.within, "clEnqueueNDRangeKernel", event, err)
}

// startReduce starts a kernel. The arguments are stored in the kernel object, so kernels.mu
// is held until it is launched.
func (d *device) startReduce(q queueID, r reduction, n devices.Size) (eventPointer, error) {
	ks := &d.kernels
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k, err := ks.find(d, r.t, r.op)
	if err != nil {
		return 0, err
	}
	size := r.t.Size()
	count := uint64(n) / size
	for i, word := range []uint64{uint64(r.dst.mem), r.dst.off / size, uint64(r.src.mem), r.src.off / size, count} {
		if err := d.api.setWord(k, i, word); err != nil {
			return 0, err
		}
	}
	return d.api.launch(q, k, (count+itemBlock-1)/itemBlock*itemBlock)
}
