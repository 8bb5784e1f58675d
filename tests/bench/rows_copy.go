package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/transport"
)

// copyRows returns the rows of copies inside a device and between two.
func (l *lab) copyRows() []row {
	src, dst := l.in("ocl0", "file"), l.in("ocl0", "copy")
	rawCopy := l.raw(func(b opencl.Baseline) float64 { return b.Copy })
	warm := l.cp("cp", src, dst)
	fresh := warm.Prepare
	warm.Prepare = func(ctx context.Context) error {
		// An existing file passes its memory to the copy.
		return errors.Join(l.ensure(ctx, dst), fresh(ctx))
	}
	return []row{
		{
			name: "D2D, cp inside one OpenCL device", unit: gigabytes, after: removing(src, dst),
			sides: []side{warm, {Name: "clEnqueueCopyBuffer", Run: rawCopy}},
			wants: []want{{of: "cp", against: "clEnqueueCopyBuffer", bound: 0.85}},
			notes: []string{
				"Both into memory that has its pages: the raw copy is the second pass over its buffers, and before each cp a file",
				"of the same size was removed. The whole of the process cp is timed.",
			},
		},
		l.staged(),
		{
			name: "D2D, cp between two sim devices", unit: gigabytes,
			after: removing(l.in("sim1", "file"), l.in("sim2", "file")),
			sides: []side{
				l.cp("cp", l.in("sim1", "file"), l.in("sim2", "file")),
				l.ddRead("dd read of the source", l.in("sim1", "file")),
			},
			notes: []string{"The same as a user sees it, through the mount."},
		},
		l.manyFiles(),
	}
}

// The files of manyFiles: fewer, if other rows have fewer too.
const (
	mostManyFiles = 3000
	manyFileSize  = 100_000
)

// manyFiles copies a tree of small files onto the mount.
func (l *lab) manyFiles() row {
	src, n := l.on("tree"), min(mostManyFiles, l.opts.files)
	copied := func(name, device, program string, args ...string) side {
		dst := l.in(device, "tree")
		return side{
			Name:    name,
			Prepare: func(ctx context.Context) error { return errors.Join(plant(ctx, src, n), removeAll(dst)) },
			Run: bench.Timed(func(ctx context.Context) (int64, error) {
				_, err := measure.Output(exec.CommandContext(ctx, program, append(args, src, dst)...))
				return int64(n), err
			}),
		}
	}
	return row{
		name: fmt.Sprintf("copies of a tree of %d files of %d kB", n, manyFileSize/1000), unit: perSecond,
		after: removing(src, l.in("ocl0", "tree"), l.in("host", "tree")),
		sides: []side{
			copied("hmcfs cp -r to ocl0", "ocl0", l.opts.hmcfs, "cp", "-q", "-r"),
			copied("cp -r to ocl0", "ocl0", "cp", "-r"),
			copied("hmcfs cp -r to host", "host", l.opts.hmcfs, "cp", "-q", "-r"),
			copied("cp -r to host", "host", "cp", "-r"),
		},
		wants: []want{
			{of: "hmcfs cp -r to ocl0", against: "cp -r to ocl0", bound: 1},
			{of: "hmcfs cp -r to host", against: "cp -r to host", bound: 1},
		},
		notes: []string{"Files a second, from tmpfs, in ten directories. The whole of each process is timed."},
	}
}

// plant writes the tree of manyFiles, unless it is there.
func plant(ctx context.Context, dir string, n int) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	bytes := make([]byte, manyFileSize)
	for i := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := filepath.Join(dir, strconv.Itoa(i%10))
		for at := range bytes {
			bytes[at] = byte(i + at*at>>3)
		}
		err := os.MkdirAll(at, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(at, strconv.Itoa(i)), bytes, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stagedChunk is the size in which the stages alone are measured: that of the pipeline.
const stagedChunk = transport.DefaultChunkSize

// staged measures the engine between two simulated devices, and each of its stages alone.
func (l *lab) staged() row {
	return row{
		name: "D2D, staged pipeline between two sim devices of 20 GB/s", unit: gigabytes,
		custom: l.measureStaged,
		wants:  []want{{of: "staged", against: "slower stage", bound: 0.80}},
		notes: []string{
			fmt.Sprintf("In this process, by the transport engine with its defaults. A stage alone is all pieces of %v one after the", stagedChunk),
			"other between the device and one slot. On this machine each stage is bounded by the processor's copy, not by 20 GB/s.",
		},
	}
}

func (l *lab) measureStaged(ctx context.Context, rounds int) (res result, err error) {
	p := sim.Params{Size: 2 * l.opts.size, Bandwidth: 20e9}
	src, dst := sim.New(1, p), sim.New(2, p)
	defer func() { err = errors.Join(err, src.Close(), dst.Close()) }()
	engine, err := transport.New(transport.Options{})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	from, err := filled(ctx, src, l.opts.size)
	if err != nil {
		return res, err
	}
	to, err := filled(ctx, dst, l.opts.size)
	if err != nil {
		return res, err
	}
	slot, err := engine.Slots().Get(ctx, stagedChunk)
	if err != nil {
		return res, err
	}
	defer slot.Release()
	res, err = inTurns(ctx, rounds, []side{
		{Name: "staged", Run: bench.Timed(func(ctx context.Context) (int64, error) {
			path, failed := engine.Copy(ctx, transport.DeviceSpan(to), transport.DeviceSpan(from))
			if failed == nil && path != transport.PathStaged {
				failed = fmt.Errorf("the path was %s", path)
			}
			return int64(to.Len), failed
		})},
		{Name: "D2H alone", Run: pieces(from, func(ctx context.Context, part devices.Span) error {
			return src.CopyOut(ctx, slot.Bytes()[:part.Len], part)
		})},
		{Name: "H2D alone", Run: pieces(to, func(ctx context.Context, part devices.Span) error {
			return dst.CopyIn(ctx, part, slot.Bytes()[:part.Len])
		})},
	})
	if err != nil {
		return res, err
	}
	var slower bench.Series
	for i, out := range res.series("D2H alone") {
		slower = append(slower, min(out, res.series("H2D alone")[i]))
	}
	res.figures = append(res.figures, figure{"slower stage", slower})
	return res, nil
}

// filled allocates memory with all its pages present.
func filled(ctx context.Context, d devices.Device, n devices.Size) (devices.Span, error) {
	mem, err := d.Alloc(ctx, n)
	if err != nil {
		return devices.Span{}, err
	}
	return mem.All(), d.Fill(ctx, mem.All(), 1)
}

// pieces returns a function that measures a copy of a span, piece by piece.
func pieces(all devices.Span, move func(context.Context, devices.Span) error) func(context.Context) (float64, error) {
	return bench.Timed(func(ctx context.Context) (int64, error) {
		for off := devices.Size(0); off < all.Len; off += stagedChunk {
			part, err := all.Sub(devices.Offset(off), min(stagedChunk, all.Len-off))
			if err != nil {
				return 0, err
			}
			if err := move(ctx, part); err != nil {
				return 0, err
			}
		}
		return int64(all.Len), nil
	})
}
