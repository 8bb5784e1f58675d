package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// pauseRows returns the rows of the pauses that programs see.
func (h *held) pauseRows() []row {
	notes := []string{
		"For each device a thread opens a file, reads and writes 4 KiB of it, closes it, makes a file and removes it, again and again, and",
		"compares all bytes. The pause is the longest call of any of them that ended after the daemon was asked to end and began before all of",
		"them had gone on with the next one. The daemon has served for 0.1 to 0.5 s each time. max is the longest of all.",
	}
	pause := func(name string, replace func(context.Context, *measure.Mount) error, most float64) row {
		return row{
			name: name, unit: seconds, notes: notes,
			custom: func(ctx context.Context, _ int) (result, error) { return h.pauses(ctx, replace) },
			wants:  []want{{of: "p50", bound: 0.5, atMost: true}, {of: "p99", bound: most, atMost: true}},
		}
	}
	return []row{
		pause("pause, kill -9 of the daemon", func(_ context.Context, m *measure.Mount) error { return unix.Kill(m.PID, unix.SIGKILL) }, 2),
		pause("pause, hmcfs upgrade", func(ctx context.Context, m *measure.Mount) error {
			_, err := measure.Output(m.Command(ctx, m.Program, "upgrade", "--program", m.Program, m.Point))
			return err
		}, 0.5),
	}
}

// pauses replaces the daemon again and again under a prober on each device.
func (h *held) pauses(ctx context.Context, replace func(context.Context, *measure.Mount) error) (res result, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	var probers []*prober
	var all sync.WaitGroup
	for _, device := range []string{"host", "sim0", "ocl0"} {
		var p *prober
		if p, err = newProber(h.lab.mnt.Path(device)); err != nil {
			stop(nil)
			all.Wait()
			return res, err
		}
		probers = append(probers, p)
		all.Go(func() {
			if fault := p.run(ctx); fault != nil {
				stop(fmt.Errorf("%s: %w", device, fault))
			}
		})
	}
	var took bench.Series
	for range h.opts.deaths {
		var pause time.Duration
		if pause, err = h.pause(ctx, probers, replace); err != nil {
			break
		}
		took = append(took, pause.Seconds())
	}
	stop(nil)
	all.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = cause // that of a prober
	}
	for _, p := range probers {
		err = errors.Join(err, os.Remove(p.file))
	}
	slices.Sort(took)
	at := func(name string, part int) figure {
		if len(took) == 0 {
			return figure{name: name}
		}
		return figure{name, bench.Series{took[min(len(took)-1, len(took)*part/100)]}}
	}
	res.figures = []figure{at("p50", 50), at("p99", 99), at("max", 100)}
	return res, err
}

// pause replaces the daemon at a random moment, and returns the pause once another one serves and every prober has gone on.
func (h *held) pause(ctx context.Context, probers []*prober, replace func(context.Context, *measure.Mount) error) (time.Duration, error) {
	wait := 100*time.Millisecond + time.Duration(mrand.IntN(400))*time.Millisecond
	if err := waits(ctx, wait); err != nil {
		return 0, err
	}
	for _, p := range probers {
		p.reset()
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	m := h.lab.mnt
	if err := replace(ctx, m); err != nil {
		return 0, err
	}
	for last := m.PID; m.PID == last; {
		if st, err := m.Status(ctx); err == nil {
			m.PID = st.PID
		}
		if err := waits(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
	var longest time.Duration
	for _, p := range probers {
		for was := p.rounds(); p.rounds() < was+2; {
			if err := waits(ctx, 5*time.Millisecond); err != nil {
				return 0, err
			}
		}
		longest = max(longest, p.reset())
	}
	return longest, nil
}

// waits waits for a time, or returns the reason why not to.
func waits(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prober is a program that uses one device all the time.
type prober struct {
	file, name string
	content    []byte

	mu sync.Mutex
	// longest is the longest call since reset, and done counts the rounds.
	longest time.Duration
	done    int
}

func newProber(dir string) (*prober, error) {
	p := &prober{file: filepath.Join(dir, "probed"), name: filepath.Join(dir, "name"), content: make([]byte, 1<<20)}
	if _, err := rand.Read(p.content); err != nil {
		return nil, err
	}
	return p, os.WriteFile(p.file, p.content, 0o600)
}

// run makes the calls until the end of the context.
func (p *prober) run(ctx context.Context) error {
	for round := 0; ctx.Err() == nil; round++ {
		if err := p.round(round * 4096 % len(p.content)); err != nil {
			return err
		}
		p.mu.Lock()
		p.done++
		p.mu.Unlock()
	}
	return nil
}

// round makes each call once.
func (p *prober) round(off int) error {
	var f, made *os.File
	got, want := make([]byte, 4096), p.content[off:off+4096]
	for _, call := range []func() error{
		func() (err error) { f, err = os.OpenFile(p.file, os.O_RDWR, 0); return err },
		func() error { _, err := f.ReadAt(got, int64(off)); return err },
		func() error { return kit.Same(p.file, got, want) },
		func() error { _, err := f.WriteAt(want, int64(off)); return err },
		func() error { return f.Close() },
		func() (err error) { made, err = os.Create(p.name); return err },
		func() error { return made.Close() },
		func() error { return os.Remove(p.name) },
	} {
		begun := time.Now()
		if err := call(); err != nil {
			return err
		}
		p.mu.Lock()
		p.longest = max(p.longest, time.Since(begun))
		p.mu.Unlock()
	}
	return nil
}

// reset returns the longest call since the last reset.
func (p *prober) reset() (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest, p.longest = p.longest, 0
	return longest
}

func (p *prober) rounds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}
