package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// serve starts hmcfs perf serve at a spot, until close.
func (p *peers) serve(ctx context.Context, s *spot, listen ...string) error {
	listen = append([]string{s.host + ":0"}, listen...)
	args := []string{"perf", "serve", "--plain", "--secret-file", p.secret} // the contenders do not encrypt
	for _, at := range listen {
		args = append(args, "--listen", at)
	}
	args = append(args, s.flags...)
	cmd := s.within(s.serve(ctx, p.opts.hmcfs, args...))
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.Later(func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	})
	lines := bufio.NewScanner(said)
	for range listen {
		if !lines.Scan() {
			return fmt.Errorf("hmcfs %s ended", strings.Join(args, " "))
		}
		s.at = append(s.at, strings.TrimPrefix(lines.Text(), "tcp:"))
	}
	return nil
}

// perf runs hmcfs perf run.
func (p *peers) perf(ctx context.Context, s *spot, at string, args ...string) (r perf.Report, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	args = append([]string{"perf", "run", "--plain", "--json", "--secret-file", p.secret, at}, append(args, s.flags...)...)
	out, err := measure.Output(s.within(s.run(ctx, p.opts.hmcfs, args...)))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(out), &r)
}

// transfer returns a side of bandwidth rows: transfers of one size, in bytes per second by the
// mean, as the contenders count.
func (p *peers) transfer(s *spot, name, transport, operation string, size devices.Size, args ...string) side {
	return side{Name: name, Run: func(ctx context.Context) (float64, error) {
		r, err := p.perf(ctx, s, s.at[0], append([]string{
			"--transport", transport, "--operation", operation, "--sizes", fmt.Sprint(uint64(size)), "--rounds", "1",
			"--bytes", fmt.Sprint(uint64(p.opts.moved)),
		}, args...)...)
		if err != nil {
			return 0, err
		}
		row, err := only(&r, "bandwidth")
		if err != nil {
			return 0, err
		}
		return float64(row.Bytes) / row.MeanUS * 1e6, nil
	}}
}

// tag returns a side of latency rows: half of a tag's round trip, in seconds by the median.
func (p *peers) tag(s *spot, name, transport string) side {
	return side{Name: name, Run: func(ctx context.Context) (float64, error) {
		r, err := p.perf(ctx, s, s.at[0], "--transport", transport, "--operation", "tag",
			"--rounds", fmt.Sprint(p.opts.trips), "--warm-up", fmt.Sprint(p.opts.trips/10))
		if err != nil {
			return 0, err
		}
		row, err := only(&r, "latency")
		if err != nil {
			return 0, err
		}
		return row.MedianUS / 1e6, nil
	}}
}

// only returns the only row of a mode.
func only(r *perf.Report, mode string) (*perf.Row, error) {
	var found *perf.Row
	for i := range r.Rows {
		if r.Rows[i].Mode != mode {
			continue
		}
		if found != nil {
			return nil, errors.New("hmcfs perf run has two rows of " + mode)
		}
		found = &r.Rows[i]
	}
	if found == nil {
		return nil, errors.New("hmcfs perf run has no row of " + mode)
	}
	return found, nil
}

// installed returns an error if a program is not installed, with the way to install it.
func installed(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("%w; make deps installs it", err)
	}
	return nil
}
