package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// target is the least that a ratio should have: of the side over to the side against.
type target struct {
	of, against string
	bound       float64
}

// side is one measured side, in bytes per second.
type side = bench.Probe

// compare measures the sides in alternation and adds a row for each target. The first row has
// the figures of all sides.
func (s *suite) compare(ctx context.Context, what string, sides []side, targets ...target) {
	if !s.chosen(what) {
		return
	}
	all, err := s.turns(ctx, sides)
	if err != nil {
		s.fail(ctx, what, err)
		return
	}
	figures := make([]string, len(sides))
	for i, p := range sides {
		figures[i] = p.Name + " " + rate(all[p.Name].Median())
	}
	text := "; " + strings.Join(figures, ", ")
	for _, t := range targets {
		if all[t.of] == nil || all[t.against] == nil {
			continue
		}
		r := row{what: what, verdict: stated}
		ratio := all[t.of].Over(all[t.against]).Median()
		r.measured = fmt.Sprintf("%s %.2f of %s%s", t.of, ratio, t.against, text)
		text = ""
		if t.bound > 0 {
			r.target, r.verdict = fmt.Sprintf("≥ %.2f", t.bound), missed
			if ratio >= t.bound {
				r.verdict = reached
			}
		}
		s.add(r)
	}
}

// turns measures every side once per round.
func (s *suite) turns(ctx context.Context, sides []side) (map[string]bench.Series, error) {
	if err := s.inTime(ctx); err != nil {
		return nil, err
	}
	series, err := bench.Interleave(ctx, s.opts.rounds, sides)
	if err != nil {
		return nil, err
	}
	out := make(map[string]bench.Series)
	for i, p := range sides {
		out[p.Name] = series[i]
	}
	return out, nil
}

func rate(v float64) string { return fmt.Sprintf("%.2f GB/s", v/1e9) }

// pinned returns the driver's own copy as a side; other families have none.
func (s *suite) pinned(kind string, size, call devices.Size) []side {
	if s.raw == nil {
		return nil
	}
	return []side{{Name: "cuMemcpy" + rawNames()[kind], Run: func(context.Context) (float64, error) {
		answer, err := s.raw.ask(fmt.Sprintf("%s %d %d", kind, uint64(size), uint64(call)))
		if err != nil {
			return 0, err
		}
		return parseRate(answer)
	}}}
}

func rawNames() map[string]string {
	return map[string]string{"dtoh": "DtoH", "htod": "HtoD", "dtod": "DtoD"}
}

// parseRate parses "BYTES NANOSECONDS".
func parseRate(answer string) (float64, error) {
	var n, ns float64
	if _, err := fmt.Sscanf(answer, "%f %f", &n, &ns); err != nil || ns <= 0 {
		return 0, fmt.Errorf("%q is no BYTES NANOSECONDS", answer)
	}
	return n / ns * 1e9, nil
}

// fileio runs the program fileio.
func (s *suite) fileio(ctx context.Context, args ...string) (float64, error) {
	answer, err := measure.Output(s.tool(ctx, "fileio", args...))
	if err != nil {
		return 0, err
	}
	return parseRate(answer)
}

// reading reads files concurrently, with a thread for each.
func (s *suite) reading(name string, size, call devices.Size, files ...string) side {
	return side{
		Name:    name,
		Prepare: func(ctx context.Context) error { return s.makeFiles(ctx, size, files...) },
		Run: func(ctx context.Context) (float64, error) {
			return s.fileio(ctx, append([]string{"read", bytes(call)}, files...)...)
		},
	}
}

// writing writes a new file.
func (s *suite) writing(name string, call devices.Size, file string) side {
	return side{
		Name:    name,
		Prepare: func(context.Context) error { return remove(file) },
		Run: func(ctx context.Context) (float64, error) {
			return s.fileio(ctx, "write", bytes(call), bytes(s.sizes.file), file)
		},
	}
}

// copying times the process that copies a file to a new one: a program with its first
// arguments.
func (s *suite) copying(name string, size devices.Size, from, to string, program ...string) side {
	return side{
		Name:    name,
		Prepare: func(ctx context.Context) error { return errors.Join(s.makeFiles(ctx, size, from), remove(to)) },
		Run: bench.Timed(func(ctx context.Context) (int64, error) {
			return int64(size), s.command(ctx, program[0], append(program[1:len(program):len(program)], from, to)...)
		}),
	}
}

// speed measures every row of the table.
func (s *suite) speed(ctx context.Context) {
	if s.tmpfs != "" {
		s.readSpeed(ctx)
		s.writeSpeed(ctx)
		s.manyReaders(ctx)
	}
	s.insideSpeed(ctx)
	s.tierSpeed(ctx)
	s.firstByte(ctx)
}

// The names of the sides that every row has.
const throughMount, onTmpfs = "through the mount", "tmpfs"

func (s *suite) readSpeed(ctx context.Context) {
	on, beside := s.path("read"), filepath.Join(s.tmpfs, "read")
	defer func() { _ = remove(on, beside) }()
	for _, call := range []devices.Size{devices.MiB, 16 * devices.MiB} {
		sides := append([]side{s.reading(throughMount, s.sizes.file, call, on), s.reading(onTmpfs, s.sizes.file, call, beside)},
			s.pinned("dtoh", s.sizes.file, call)...)
		s.compare(ctx, fmt.Sprintf("read of a device file, calls of %v, one reader", call), sides,
			target{throughMount, onTmpfs, 0.6}, target{throughMount, "cuMemcpyDtoH", 0})
	}
}

// makeFiles writes the files that do not exist yet.
func (s *suite) makeFiles(ctx context.Context, size devices.Size, paths ...string) error {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			continue
		}
		if _, err := s.fileio(ctx, "write", bytes(16*devices.MiB), bytes(size), p); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) writeSpeed(ctx context.Context) {
	on, beside := s.path("write"), filepath.Join(s.tmpfs, "write")
	defer func() { _ = remove(on, beside) }()
	for _, call := range []devices.Size{devices.MiB, 16 * devices.MiB} {
		sides := append([]side{s.writing(throughMount, call, on), s.writing(onTmpfs, call, beside)},
			s.pinned("htod", s.sizes.file, call)...)
		s.compare(ctx, fmt.Sprintf("write of a new device file, calls of %v, one writer", call), sides,
			target{throughMount, onTmpfs, 0.5}, target{throughMount, "cuMemcpyHtoD", 0})
	}
}

func (s *suite) manyReaders(ctx context.Context) {
	var on, beside []string
	for i := range 4 {
		on = append(on, s.path(fmt.Sprint("many", i)))
		beside = append(beside, filepath.Join(s.tmpfs, fmt.Sprint("many", i)))
	}
	defer func() { _ = remove(append(on, beside...)...) }()
	reading := func(name string, files ...string) side { return s.reading(name, s.sizes.file/2, devices.MiB, files...) }
	s.compare(ctx, "4 readers of 4 files, calls of 1 MiB", []side{
		reading("four", on...), reading("one", on[0]), reading("tmpfs, four", beside...), reading("tmpfs, one", beside[0]),
	}, target{"four", "one", 2.5}, target{"tmpfs, four", "tmpfs, one", 0})
}

func (s *suite) insideSpeed(ctx context.Context) {
	from, to, again := s.path("from"), s.path("to"), s.path("again")
	defer func() { _ = remove(from, to, again) }()
	sides := []side{
		s.copying("cp", s.sizes.large, from, to, "cp"),
		{
			Name:    "copy_file_range alone",
			Prepare: func(ctx context.Context) error { return s.makeFiles(ctx, s.sizes.large, from, again) },
			Run:     func(ctx context.Context) (float64, error) { return s.fileio(ctx, "copy", from, again) },
		},
	}
	sides = append(sides, s.pinned("dtod", s.sizes.large, s.sizes.large)...)
	s.compare(ctx, fmt.Sprintf("D2D cp of %v inside the device", s.sizes.large), sides,
		target{"cp", "cuMemcpyDtoD", 0.9}, target{"copy_file_range alone", "cuMemcpyDtoD", 0}, target{"cp", "copy_file_range alone", 0})
}

func (s *suite) tierSpeed(ctx context.Context) {
	host, on := s.hostPath("staged"), s.path("staged")
	defer func() { _ = remove(host, on) }()
	for _, way := range []struct{ what, from, to, raw string }{
		{"host tier to device", host, on, "htod"}, {"device to host tier", on, host, "dtoh"},
	} {
		sides := append([]side{
			s.copying("hmcfs cp", s.sizes.staged, way.from, way.to, "hmcfs", "cp"), s.copying("cp", s.sizes.staged, way.from, way.to, "cp"),
		}, s.pinned(way.raw, s.sizes.staged, 16*devices.MiB)...)
		s.compare(ctx, fmt.Sprintf("hmcfs cp of %v, %s", s.sizes.staged, way.what), sides,
			target{"hmcfs cp", "cuMemcpy" + rawNames()[way.raw], 0.9}, target{"hmcfs cp", "cp", 0})
		if err := remove(way.from); err != nil {
			return
		}
	}
}
