package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// crowd is the number of clients at once.
const crowd = 8

// crowdRow compares clients at once, each a process, with one. Redis, which never polls, shows what the processes cost.
func (c *beside) crowdRow() row {
	most := time.Duration(max(1, c.lobby.opts.calls)) * 500 * time.Microsecond
	at := func(n int) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return c.crowd(ctx, n, most) }
	}
	many := fmt.Sprintf("%d clients", crowd)
	redis := func(n int) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			return c.redis.crowd(ctx, n, smallKey, 4*c.lobby.opts.calls)
		}
	}
	return row{
		name: "mget of " + short(smallKey) + " by " + many + " at once", unit: perSecond,
		sides: []side{
			{Name: many, Prepare: c.server, Run: at(crowd)},
			{Name: "one client", Prepare: c.server, Run: at(1)},
			{Name: fmt.Sprintf("%d of redis-benchmark", crowd), Prepare: c.server, Run: redis(crowd)},
			{Name: "one of redis-benchmark", Prepare: c.server, Run: redis(1)},
		},
		wants: []want{{of: many, against: "one client", bound: 2}},
		notes: []string{
			fmt.Sprintf("Calls per second during %v. Each client is a process with a session, which reads a key of its own, one call after the other.", most),
			fmt.Sprintf("Those of Redis are processes too, each with %d SETs and then as many GETs of one key, which count; they begin when they", 4*c.lobby.opts.calls),
			"are ready, so that some call while fewer do, and their sum is rather too large.",
		},
	}
}

// crowd returns the calls per second of n processes together, that make calls for a time.
func (c *beside) crowd(ctx context.Context, n int, most time.Duration) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	all := make([]*one, n)
	for i := range all {
		var err error
		if all[i], err = startOne(ctx, c.lobby.lab.mnt.Socket(), i, most); err != nil {
			stop()
			return 0, errors.Join(err, finishAll(all[:i]))
		}
	}
	ready := make([]error, n)
	for i, o := range all {
		if ready[i] = o.line(); ready[i] != nil {
			stop()
		}
	}
	for _, o := range all {
		_ = o.in.Close() // they begin
	}
	err := errors.Join(errors.Join(ready...), finishAll(all))
	sum := 0.0
	for _, o := range all {
		sum += o.rate
	}
	return sum, err
}

// one is a process that is a client of a crowd.
type one struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	said strings.Builder
	rate float64
}

func startOne(ctx context.Context, socket string, i int, most time.Duration) (*one, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o := &one{cmd: exec.CommandContext(ctx, self, childArg, "crowd", socket, strconv.Itoa(i), strconv.FormatInt(most.Microseconds(), 10))}
	o.cmd.Stderr = &o.said
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.out = bufio.NewReader(out)
	return o, o.cmd.Start()
}

// line waits until the process is ready.
func (o *one) line() error {
	_, err := o.out.ReadString('\n')
	return err
}

// finishAll waits for processes, and reads their rates.
func finishAll(all []*one) error {
	var errs []error
	for _, o := range all {
		text, err := io.ReadAll(o.out)
		if err == nil {
			o.rate, err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		}
		if err = errors.Join(err, o.cmd.Wait()); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, strings.TrimSpace(o.said.String())))
		}
	}
	return errors.Join(errs...)
}

// crowdTask makes the calls of a client of a crowd: it says that it is ready, begins when its
// standard input ends, and returns its calls per second.
func crowdTask(ctx context.Context, out io.Writer, socket string, i int, most time.Duration) (rate float64, err error) {
	var undo measure.Undo
	defer func() { err = errors.Join(err, undo.Close()) }()
	r, err := newRemote(ctx, &undo, socket, fmt.Sprintf("crowd-%d", i), 1, smallKey)
	if err != nil {
		return 0, err
	}
	if err = r.mset(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.check(), r.forget(ctx)) }()
	if _, err = calls(100, r.mget)(ctx); err != nil {
		return 0, err
	}
	if _, err = fmt.Fprintln(out, "ready"); err != nil {
		return 0, err
	}
	if _, err = io.Copy(io.Discard, os.Stdin); err != nil {
		return 0, err
	}
	n, begin := 0, time.Now()
	for time.Since(begin) < most {
		took, err := calls(10, r.mget)(ctx)
		if err != nil || took == 0 {
			return 0, err
		}
		n += 10
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}
