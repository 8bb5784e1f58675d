package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

const (
	// heldTurns is the number of turns of a pair of mounts, and heldTimes that of the times that a file is read or written in one.
	heldTurns = 4
	heldTimes = 4
)

// sizeInTurn is the size of a file that is read or written, and namesInTurn the number of those that are made and removed. Turns are
// short, because the machine is not the same for long.
func (h *held) sizeInTurn() devices.Size { return h.opts.size / 32 }

func (h *held) namesInTurn() int { return max(1, h.opts.files/50) }

// work is done in the directory of a device. It returns the amount of it.
type work func(ctx context.Context, dir string) (int64, error)

// costRows returns the rows of a mount with a holder beside one without.
func (h *held) costRows() []row {
	size := h.sizeInTurn()
	names := func(ctx context.Context, dir string) (int64, error) {
		return bench.CreateUnlink(ctx, filepath.Join(dir, "names"), h.namesInTurn())
	}
	write := func(ctx context.Context, dir string) (int64, error) {
		return bench.Write(ctx, filepath.Join(dir, "file"), int64(size))
	}
	read := func(ctx context.Context, dir string) (int64, error) {
		return bench.Read(ctx, filepath.Join(dir, "file"))
	}
	return []row{
		h.cost("holder, create and unlink", perSecond, names, true,
			fmt.Sprintf("%d empty files in a turn: by the clock, and for each second of the daemon's processor time.", h.namesInTurn())),
		h.cost("holder, write", gigabytes, repeated(write), false, fmt.Sprintf("A file of %v, which is replaced %d times in a turn.", size, heldTimes)),
		h.cost("holder, read", gigabytes, repeated(read), false, fmt.Sprintf("A file of %v, which is new in each turn and read %d times.", size, heldTimes)),
	}
}

// repeated does work heldTimes.
func repeated(once work) work {
	return func(ctx context.Context, dir string) (sum int64, err error) {
		for range heldTimes {
			some, err := once(ctx, dir)
			if err != nil {
				return 0, err
			}
			sum += some
		}
		return sum, nil
	}
}

// cost compares work on mounts with and without a holder. Two daemons of one program differ by as much as a tenth while they live,
// so there are new ones in each round.
func (h *held) cost(name, unit string, do work, processor bool, note string) row {
	r := row{name: name, unit: unit, notes: []string{
		note, fmt.Sprintf("In each round there are two new mounts, which have %d turns each; either is the first in each second turn.", heldTurns),
	}}
	var sides []heldSide
	for _, device := range []string{"host", "sim0"} {
		sides = append(sides, heldSide{device: device, name: device}, heldSide{device: device, name: device + " without", bare: true})
		r.wants = append(r.wants, want{of: device, against: device + " without", bound: 0.98})
		if processor {
			r.wants = append(r.wants, want{of: device + ", processor", against: device + " without, processor", bound: 0.98})
		}
	}
	r.custom = func(ctx context.Context, rounds int) (res result, err error) {
		for range rounds {
			if err = h.pair(ctx, do, sides); err != nil {
				return res, err
			}
		}
		for _, s := range sides {
			res.figures = append(res.figures, figure{s.name, s.clock})
			if processor {
				res.figures = append(res.figures, figure{s.name + ", processor", s.processor})
			}
		}
		return res, nil
	}
	return r
}

// heldSide has the figures of a device of mounts with a holder, or without.
type heldSide struct {
	device, name     string
	bare             bool
	clock, processor bench.Series
}

// pair mounts with and without a holder, and has each side do the work in turns.
func (h *held) pair(ctx context.Context, do work, sides []heldSide) (err error) {
	mounts := map[bool]*measure.Mount{}
	for bare, flags := range map[bool][]string{false: nil, true: {"--no-hold"}} {
		m := &measure.Mount{Program: h.opts.hmcfs, Point: filepath.Join(h.lab.dir, fmt.Sprintf("pair.%t", bare))}
		if err = m.Start(ctx, append(flags, measure.Devices("host,size=256MiB", "sim:0,size=256MiB")...)...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Unmount(ctx)) }()
		mounts[bare] = m
	}
	for turn := range heldTurns {
		for at := range sides {
			s := &sides[at^turn&1]
			if err = h.turn(ctx, do, mounts[s.bare], s); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// turn does the work once.
func (h *held) turn(ctx context.Context, do work, m *measure.Mount, s *heldSide) error {
	dir := m.Path(s.device)
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.RemoveAll(file), os.MkdirAll(filepath.Join(dir, "names"), 0o700)); err != nil {
		return err
	}
	if _, err := bench.Write(ctx, file, int64(h.sizeInTurn())); err != nil {
		return err
	}
	before, err := processorTime(m.PID)
	if err != nil {
		return err
	}
	begun := time.Now()
	n, err := do(ctx, dir)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := processorTime(m.PID)
	s.clock, s.processor = append(s.clock, float64(n)/took.Seconds()), append(s.processor, float64(n)/(after-before))
	return err
}

// processorTime returns the processor time of another process, in seconds, by the clock of clock_getcpuclockid(3).
func processorTime(pid int) (float64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("ask for the processor time of process %d: %w", pid, err)
	}
	return float64(t.Nano()) / 1e9, nil
}
