package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
)

// mapped reads a file through a map, by this program.
func (l *lab) mapped(path string) side {
	return side{
		prepare: func(ctx context.Context) error { return l.ensure(ctx, path) },
		run: bench.Timed(func(ctx context.Context) (int64, error) {
			return bench.ReadMapped(ctx, path)
		}),
	}
}

// hostRows are those of the host tier.
func (l *lab) hostRows() []row {
	host, tmp := l.in("host", "file"), l.on("file")
	after := removing(host, tmp)
	return []row{
		{
			name: "host tier, dd read", unit: gigabytes, after: after,
			sides: []side{l.ddRead(host).named("host"), l.ddRead(tmp).named("tmpfs")},
			wants: []want{{of: "host", against: "tmpfs", bound: 0.90}},
		},
		{
			name: "host tier, dd write", unit: gigabytes, after: after,
			sides: []side{l.ddWrite(host).named("host"), l.ddWrite(tmp).named("tmpfs")},
			wants: []want{{of: "host", against: "tmpfs", bound: 0.85}},
			notes: []string{"Into a new file, on both sides."},
		},
		{
			name: "host tier, mmap read", unit: gigabytes, after: after,
			sides: []side{l.mapped(host).named("host"), l.mapped(tmp).named("tmpfs")},
			wants: []want{{of: "host", against: "tmpfs", bound: 0.90}},
			notes: []string{"A new shared map, copied in pieces of 1 MiB."},
		},
	}
}

// raw is a figure of plain OpenCL calls on buffers of the lab's size.
func (l *lab) raw(pick func(opencl.Baseline) float64) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		spec, err := devices.ParseSpec("opencl:0")
		if err != nil {
			return 0, err
		}
		b, err := l.opencl.Baseline(ctx, spec, opencl.BaselineOptions{Size: l.opts.size, Chunk: devices.MiB})
		return pick(b), err
	}
}

// openclRows are those of files in OpenCL memory.
func (l *lab) openclRows() []row {
	ocl, tmp := l.in("ocl0", "file"), l.on("file")
	after := removing(ocl, tmp)
	rawRead := l.raw(func(b opencl.Baseline) float64 { return b.Read })
	rawWrite := l.raw(func(b opencl.Baseline) float64 { return b.Write })
	return []row{
		{
			name: "OpenCL file, dd read", unit: gigabytes, after: after,
			sides: []side{
				l.ddRead(ocl).named("ocl0"), l.ddRead(tmp).named("tmpfs"),
				{name: "clEnqueueReadBuffer", run: rawRead},
			},
			wants: []want{
				{of: "ocl0", against: "tmpfs", bound: 0.50},
				{of: "ocl0", against: "clEnqueueReadBuffer", bound: 0.45},
			},
			notes: []string{"The raw calls move 1 MiB each, between one buffer of the device and the same 1 MiB of host memory; second pass."},
		},
		{
			name: "OpenCL file, dd write", unit: gigabytes, after: after,
			sides: []side{
				l.ddWrite(ocl).named("ocl0"), l.ddWrite(tmp).named("tmpfs"),
				{name: "clEnqueueWriteBuffer", run: rawWrite},
			},
			wants: []want{
				{of: "ocl0", against: "tmpfs", bound: 0.70},
				{of: "ocl0", against: "clEnqueueWriteBuffer", bound: 0.45},
			},
			notes: []string{
				"Into a new file, on both mounts. From the second round on its device memory is what the file before it",
				"gave back, so it has its pages; tmpfs takes new pages each time. The raw calls write memory that has its pages.",
			},
		},
		l.twoReaders(),
	}
}

// twoReaders compares two dd that read a file each with one alone.
func (l *lab) twoReaders() row {
	pair := func(dir string) (a, b string) { return dir + "/file", dir + "/other" }
	one := func(dir string) side {
		a, b := pair(dir)
		return side{
			prepare: func(ctx context.Context) error {
				if err := l.ensure(ctx, a); err != nil {
					return err
				}
				return l.ensure(ctx, b)
			},
			run: func(ctx context.Context) (float64, error) { return l.readers(ctx, a) },
		}
	}
	two := func(dir string) side {
		a, b := pair(dir)
		s := one(dir)
		s.run = func(ctx context.Context) (float64, error) { return l.readers(ctx, a, b) }
		return s
	}
	ocl, sim := l.in("ocl0"), l.in("sim0")
	return row{
		name: "two readers of two files at once", unit: gigabytes,
		after: removing(ocl+"/file", ocl+"/other", sim+"/file", sim+"/other", l.on("file"), l.on("other")),
		sides: []side{
			two(ocl).named("ocl0, two"), one(ocl).named("ocl0, one"),
			two(sim).named("sim0, two"), one(sim).named("sim0, one"),
			two(l.tmpfs).named("tmpfs, two"), one(l.tmpfs).named("tmpfs, one"),
		},
		wants: []want{
			{of: "ocl0, two", against: "ocl0, one", bound: 1.5},
			{of: "sim0, two", against: "sim0, one", bound: 1.5},
		},
		notes: []string{
			"Sum of both; by dd bs=1M, wall clock with the start of the processes. tmpfs shows what the machine's memory gives to two.",
		},
	}
}

// readers runs a dd for each file at once and returns bytes a second of all.
func (l *lab) readers(ctx context.Context, paths ...string) (float64, error) {
	errs := make([]error, len(paths))
	var all sync.WaitGroup
	begin := time.Now()
	for i, path := range paths {
		all.Go(func() {
			_, errs[i] = output(exec.CommandContext(ctx, "dd", "if="+path, "of=/dev/null", "bs=1M"))
		})
	}
	all.Wait()
	took := time.Since(begin).Seconds()
	for _, err := range errs {
		if err != nil {
			return 0, fmt.Errorf("read %v: %w", paths, err)
		}
	}
	return float64(l.opts.size) * float64(len(paths)) / took, nil
}
