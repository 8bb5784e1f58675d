package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
)

// constant bounds the ratio between the times for the largest and the smallest file where the
// time should not depend on the size.
const constant = 2.0

// firstByte measures how long a process waits for the first byte of a file in its own device
// memory: by opening the file's memory, and by copying it.
func (s *suite) firstByte(ctx context.Context) {
	if s.device.family != "cuda" || !s.chosen("first byte") {
		return
	}
	sizes := []devices.Size{64 * devices.MiB, devices.GiB, s.sizes.large}
	if s.opts.quick {
		sizes = []devices.Size{2 * devices.MiB, s.sizes.file, s.sizes.large}
	}
	for i := range sizes {
		sizes[i] = min(sizes[i], s.sizes.large)
	}
	sizes = slices.Compact(sizes)
	var medians bench.Series
	for _, size := range sizes {
		what := fmt.Sprintf("first byte of %v, opened by a handle beside copied", size)
		median, err := s.firstByteOf(ctx, what, size)
		if err != nil {
			s.check(ctx, what, unsupported(func(context.Context) (string, error) { return "", err }))
			return
		}
		medians = append(medians, median)
	}
	last := len(medians) - 1
	r := row{
		what:     "first byte by a handle, independent of the size",
		measured: fmt.Sprintf("%v takes %.2f times what %v takes", sizes[last], medians[last]/medians[0], sizes[0]),
		target:   fmt.Sprintf("≤ %.2f", constant), verdict: missed,
	}
	if medians[last]/medians[0] <= constant {
		r.verdict = reached
	}
	s.add(r)
}

// firstByteOf adds the row of one size, and returns the median time by a handle, in
// nanoseconds.
func (s *suite) firstByteOf(ctx context.Context, what string, size devices.Size) (_ float64, err error) {
	if err = s.inTime(ctx); err != nil {
		return 0, err
	}
	file := s.path("first")
	defer func() {
		_ = endExport(file) // there may be no export
		err = errors.Join(err, remove(file))
	}()
	if err = s.makeFiles(ctx, size, file); err != nil {
		return 0, err
	}
	// The first export may have to consolidate the file's memory.
	begin := time.Now()
	if _, err = xattr(file, handleAttr); err != nil {
		return 0, err
	}
	first := time.Since(begin)
	h, err := s.talk(ctx, "truth", "first", file, s.device.ordinal())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.end()) }()
	var whole, copies bench.Series
	var parts [3]bench.Series // the parts of the total
	for range s.opts.rounds {
		handle, err1 := askTimes(h, "handle", 3)
		copied, err2 := askTimes(h, "copy", 1)
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		whole, copies = append(whole, sum(handle)), append(copies, copied[0])
		for i, t := range handle {
			parts[i] = append(parts[i], t)
		}
	}
	s.add(row{what: what, verdict: stated, measured: fmt.Sprintf(
		"by handle %s (name it %s, open it %s, one byte %s), by copying %s; the first export %s",
		short(whole.Median()), short(parts[0].Median()), short(parts[1].Median()), short(parts[2].Median()),
		short(copies.Median()), short(float64(first)))})
	return whole.Median(), nil
}

// askTimes requests n times, in nanoseconds.
func askTimes(h *session, line string, n int) ([]float64, error) {
	answer, err := h.ask(line)
	if err != nil {
		return nil, err
	}
	var t [3]float64
	if got, _ := fmt.Sscan(answer, &t[0], &t[1], &t[2]); got != n {
		return nil, fmt.Errorf("%s is answered by %q, not by %d times", line, answer, n)
	}
	return t[:n], nil
}

func sum(times []float64) (total float64) {
	for _, t := range times {
		total += t
	}
	return total
}

// short formats nanoseconds for people.
func short(ns float64) string {
	return time.Duration(ns).Round(max(time.Duration(ns/1000), time.Microsecond)).String()
}
