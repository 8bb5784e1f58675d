package opencl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// BaselineOptions configure a measurement.
type BaselineOptions struct {
	// Size is the number of bytes that each pass moves; 256 MiB by default.
	Size devices.Size
	// Chunk is the number of bytes moved by each read and write command; 1 MiB by default.
	// It is at most Size. A copy is one command.
	Chunk devices.Size
}

// Baseline contains the speeds of a device with plain OpenCL calls, in bytes per second, as
// the reference for everything above it.
type Baseline struct {
	Read  float64 `json:"read"`
	Write float64 `json:"write"`
	Copy  float64 `json:"copy"`
}

// Baseline measures the device of a spec with blocking clEnqueueReadBuffer and
// clEnqueueWriteBuffer from pageable memory and with clEnqueueCopyBuffer, on two buffers, a
// queue and a context of its own. Each figure is that of the second of two passes, since
// the first populates the pages.
func (d *Driver) Baseline(ctx context.Context, spec devices.Spec, opts BaselineOptions) (result Baseline, err error) {
	opts.Size = cmp.Or(opts.Size, 256*devices.MiB)
	opts.Chunk = cmp.Or(opts.Chunk, devices.MiB)
	dev, _, err := d.open(ctx, spec)
	if err != nil {
		return Baseline{}, err
	}
	dev.self = dev
	defer func() { err = errors.Join(err, dev.Close()) }()
	var bufs [2]*buffer
	for i := range bufs {
		mem, err := dev.Alloc(ctx, opts.Size)
		if err != nil {
			return Baseline{}, fmt.Errorf("measure %s: %w", dev.info.Name, err)
		}
		bufs[i] = dev.buffer(mem.All())
	}
	host := make([]byte, min(opts.Chunk, opts.Size))
	chunks := func(move func(off, n devices.Size) error) func() error {
		return func() error { return moves.Pieces(ctx, opts.Size, devices.Size(len(host)), move) }
	}
	for _, m := range []struct {
		rate *float64
		pass func() error
	}{
		{&result.Write, chunks(func(off, n devices.Size) error {
			return dev.api.write(dev.in, bufs[0].mem, uint64(off), host[:n])
		})},
		{&result.Read, chunks(func(off, n devices.Size) error {
			return dev.api.read(dev.out, bufs[0].mem, uint64(off), host[:n])
		})},
		{&result.Copy, func() error {
			return dev.api.copy(dev.within, place{mem: bufs[1].mem}, place{mem: bufs[0].mem}, uint64(opts.Size))
		}},
	} {
		for range 2 {
			begin := time.Now()
			if err := m.pass(); err != nil {
				return Baseline{}, err
			}
			*m.rate = float64(opts.Size) / time.Since(begin).Seconds()
		}
	}
	return result, nil
}
