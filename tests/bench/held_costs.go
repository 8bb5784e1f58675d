package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// heldFile is the size of a file that is read or written in one turn.
const heldFile = 32 * devices.MiB

// turns returns the number of turns of each side: they are short, because the machine is not the same for long.
func (h *held) turns() int { return 8 * h.opts.rounds }

// madeInTurn returns the number of files that are made in one turn.
func (h *held) madeInTurn() int { return max(1, h.opts.files/50) }

// costRows returns the rows of a mount with a holder beside one without.
func (h *held) costRows() []row {
	write := func(ctx context.Context, dir string) (int64, error) {
		return bench.Write(ctx, filepath.Join(dir, "file"), int64(heldFile))
	}
	read := func(ctx context.Context, dir string) (int64, error) {
		return bench.Read(ctx, filepath.Join(dir, "file"))
	}
	names := func(ctx context.Context, dir string) (int64, error) {
		return bench.CreateUnlink(ctx, filepath.Join(dir, "names"), h.madeInTurn())
	}
	each := fmt.Sprintf("%d empty files are made and removed in a turn.", h.madeInTurn())
	return []row{
		h.cost("with a holder, create and unlink", perSecond, names, byClock, each),
		h.cost("with a holder, create and unlink, by processor time", perSecond, names, byProcessor, each+" Files for each second of the daemon's processor time."),
		h.cost("with a holder, write", gigabytes, write, byClock, fmt.Sprintf("A file of %v is replaced.", heldFile)),
		h.cost("with a holder, read", gigabytes, read, byClock, fmt.Sprintf("A file of %v.", heldFile)),
	}
}

// cost compares work in the directory of a device on both mounts.
func (h *held) cost(name, unit string, work func(ctx context.Context, dir string) (int64, error),
	by func(m *measure.Mount, work func(context.Context) (int64, error)) func(context.Context) (float64, error), note string,
) row {
	r := row{name: name, unit: unit, notes: []string{note}}
	var left []string
	for _, device := range []string{"host", "sim0"} {
		for _, side := range []struct {
			name string
			m    *measure.Mount
		}{{device, h.lab.mnt}, {device + " without", h.bare}} {
			dir := side.m.Path(device)
			left = append(left, filepath.Join(dir, "names"), filepath.Join(dir, "file"))
			r.sides = append(r.sides, bench.Probe{
				Name: side.name,
				Prepare: func(ctx context.Context) error {
					if err := os.MkdirAll(filepath.Join(dir, "names"), 0o700); err != nil {
						return err
					}
					if _, err := os.Stat(filepath.Join(dir, "file")); err == nil {
						return nil
					}
					_, err := bench.Write(ctx, filepath.Join(dir, "file"), int64(heldFile))
					return err
				},
				Run: by(side.m, func(ctx context.Context) (int64, error) { return work(ctx, dir) }),
			})
		}
		r.wants = append(r.wants, want{of: device, against: device + " without", bound: 0.98})
	}
	sides := r.sides
	r.custom = func(ctx context.Context, _ int) (result, error) { return inTurns(ctx, h.turns(), sides) }
	r.after = removing(left...)
	return r
}

// byClock measures work by the time that passes.
func byClock(_ *measure.Mount, work func(context.Context) (int64, error)) func(context.Context) (float64, error) {
	return bench.Timed(work)
}

// byProcessor measures work by the processor time of the daemon.
func byProcessor(m *measure.Mount, work func(context.Context) (int64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		before, err := processorTime(m.PID)
		if err != nil {
			return 0, err
		}
		n, err := work(ctx)
		if err != nil {
			return 0, err
		}
		after, err := processorTime(m.PID)
		return float64(n) / (after - before), err
	}
}

// processorTime returns the processor time of another process, in seconds, as clock_getcpuclockid(3) has it.
func processorTime(pid int) (float64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("ask for the processor time of process %d: %w", pid, err)
	}
	return float64(t.Nano()) / 1e9, nil
}
