package main

import (
	"context"
	"os/exec"
	"path/filepath"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// mapped reads a file through a map, in this program.
func (l *lab) mapped(name, path string) side {
	return side{
		Name:    name,
		Prepare: func(ctx context.Context) error { return l.ensure(ctx, path) },
		Run: bench.Timed(func(ctx context.Context) (int64, error) {
			return bench.ReadMapped(ctx, path)
		}),
	}
}

// hostRows returns the rows of the host tier.
func (l *lab) hostRows() []row {
	host, tmp := l.in("host", "file"), l.on("file")
	after := removing(host, tmp)
	return []row{
		{
			name: "host tier, dd read", unit: gigabytes, after: after,
			sides: []side{l.ddRead("host", host), l.ddRead("tmpfs", tmp)},
			wants: []want{{of: "host", against: "tmpfs", bound: 0.90}},
		},
		{
			name: "host tier, dd write", unit: gigabytes, after: after,
			sides: []side{l.ddWrite("host", host), l.ddWrite("tmpfs", tmp)},
			wants: []want{{of: "host", against: "tmpfs", bound: 0.85}},
			notes: []string{"Into a new file, on both sides."},
		},
		{
			name: "host tier, mmap read", unit: gigabytes, after: after,
			sides: []side{l.mapped("host", host), l.mapped("tmpfs", tmp)},
			wants: []want{{of: "host", against: "tmpfs", bound: 0.90}},
			notes: []string{"A new shared map, copied in pieces of 1 MiB."},
		},
	}
}

// raw returns a figure of plain OpenCL calls on buffers of the lab's size.
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

// openclRows returns the rows of files in OpenCL memory.
func (l *lab) openclRows() []row {
	ocl, tmp := l.in("ocl0", "file"), l.on("file")
	after := removing(ocl, tmp)
	rawRead := l.raw(func(b opencl.Baseline) float64 { return b.Read })
	rawWrite := l.raw(func(b opencl.Baseline) float64 { return b.Write })
	rows := []row{
		{
			name: "OpenCL file, dd read", unit: gigabytes, after: after,
			sides: []side{
				l.ddRead("ocl0", ocl), l.ddRead("tmpfs", tmp),
				{Name: "clEnqueueReadBuffer", Run: rawRead},
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
				l.ddWrite("ocl0", ocl), l.ddWrite("tmpfs", tmp),
				{Name: "clEnqueueWriteBuffer", Run: rawWrite},
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
	if l.opts.vramfs != "" {
		other := filepath.Join(l.vramfs, "file")
		rows[0].sides = append(rows[0].sides, l.ddRead("vramfs", other))
		rows[1].sides = append(rows[1].sides, l.ddWrite("vramfs", other))
		for i := range rows[:2] {
			rows[i].wants = append(rows[i].wants, want{of: "ocl0", against: "vramfs", bound: 1})
			rows[i].after = removing(ocl, tmp, other)
		}
	}
	return rows
}

// twoReaders compares two concurrent dd, each reading its own file, with one alone.
func (l *lab) twoReaders() row {
	r := row{
		name: "two readers of two files at once", unit: gigabytes,
		wants: []want{
			{of: "ocl0, two", against: "ocl0, one", bound: 1.5},
			{of: "sim0, two", against: "sim0, one", bound: 1.5},
		},
		notes: []string{
			"Sum of both; by dd bs=1M, wall clock with the start of the processes. tmpfs shows what the machine's memory gives to two.",
		},
	}
	var files []string
	for _, at := range []struct{ name, dir string }{{"ocl0", l.in("ocl0")}, {"sim0", l.in("sim0")}, {"tmpfs", l.tmpfs}} {
		a, b := at.dir+"/file", at.dir+"/other"
		r.sides = append(r.sides, l.reading(at.name+", two", a, b), l.reading(at.name+", one", a))
		files = append(files, a, b)
	}
	r.after = removing(files...)
	return r
}

// reading reads files concurrently, each with a dd.
func (l *lab) reading(name string, paths ...string) side {
	return side{
		Name: name,
		Prepare: func(ctx context.Context) error {
			for _, path := range paths {
				if err := l.ensure(ctx, path); err != nil {
					return err
				}
			}
			return nil
		},
		Run: bench.Timed(func(ctx context.Context) (int64, error) {
			return int64(l.opts.size) * int64(len(paths)), measure.AtOnce(len(paths), func(i int) error {
				_, err := measure.Output(exec.CommandContext(ctx, "dd", "if="+paths[i], "of=/dev/null", "bs=1M"))
				return err
			})
		}),
	}
}
