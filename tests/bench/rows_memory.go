package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// memoryRows measures the daemon's memory in addition to the data.
func (l *lab) memoryRows() []row {
	return []row{{
		name: "daemon memory beyond the data, after 10 GiB", unit: mebibytes,
		custom: l.measureMemory,
		wants:  []want{{of: "beyond the data", bound: 200, atMost: true}},
		notes: []string{
			"A daemon of its own. Files are written, read back, and written over, in ocl0 and sim0 in turns, until 10 GiB went in",
			"and out again; one file stays on each. Beyond the data = Pss (/proc/PID/smaps_rollup) − memory in use of ocl0 and",
			"sim0 (hmcfs status): both devices keep their memory in the daemon's process. One run.",
		},
	}}
}

func (l *lab) measureMemory(ctx context.Context, _ int) (res result, err error) {
	size := fmt.Sprintf(",size=%d", uint64(3*l.opts.size))
	m, err := l.mountOn(ctx, "memory", "", "host"+size, "opencl:0"+size, "sim:0"+size)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, m.Unmount(ctx)) }()
	start, err := sampleOf(ctx, m)
	if err != nil {
		return res, err
	}
	files := []string{m.Path("ocl0", "file"), m.Path("sim0", "file")}
	for done, i := devices.Size(0), 0; done < l.opts.through; done, i = done+l.opts.size, i+1 {
		if err = writeAndRead(ctx, files[i%2], int64(l.opts.size)); err != nil {
			return res, err
		}
	}
	full, err := sampleOf(ctx, m)
	if err != nil {
		return res, err
	}
	if err = removeAll(files...); err != nil {
		return res, err
	}
	empty, err := sampleOf(ctx, m)
	if err != nil {
		return res, err
	}
	one := func(name string, n float64) figure { return figure{name, bench.Series{n / (1 << 20)}} }
	res.figures = []figure{
		one("at the start", start.pss),
		one("Pss with the files", full.pss),
		one("data", full.data),
		one("beyond the data", full.pss-full.data),
		one("Pss after rm", empty.pss),
	}
	return res, nil
}

func writeAndRead(ctx context.Context, path string, size int64) error {
	if _, err := bench.Write(ctx, path, size); err != nil {
		return err
	}
	_, err := bench.Read(ctx, path)
	return err
}

// sample is a daemon's memory at one point in time, in bytes.
type sample struct {
	pss  float64
	data float64 // of devices that keep it in the process
}

// sampleOf queries the daemon, then the kernel.
func sampleOf(ctx context.Context, m *measure.Mount) (s sample, err error) {
	st, err := m.Status(ctx)
	if err != nil {
		return s, err
	}
	for _, d := range st.Devices {
		if !d.FileTier {
			s.data += float64(d.Used)
		}
	}
	s.pss, err = pssOf(m.PID)
	return s, err
}

// pssOf returns a process's proportional share of all memory, in bytes.
func pssOf(pid int) (float64, error) {
	var kib float64
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	if _, err := fmt.Sscanf(measure.Field(path, "Pss"), "%f kB", &kib); err != nil {
		return 0, errors.New(path + " tells no Pss")
	}
	return kib * 1024, nil
}
