package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// RunOptions is what is measured.
type RunOptions struct {
	Options

	// Peers are the addresses of one server, each measured in its turn.
	Peers []control.Address
	// MinSize and MaxSize bound the sizes of the bandwidth rows, in bytes.
	MinSize, MaxSize devices.Size
	// Bytes is about how much a bandwidth row moves.
	Bytes devices.Size
	// Rounds is how often a latency is taken.
	Rounds int
}

// The bounds of how often a bandwidth row's operation is done.
const (
	minTimes = 5
	maxTimes = 1000
)

// warmUp is the rounds that are not counted.
const warmUp = 20

// latencySize is the bytes of the puts and gets whose latency is measured.
const latencySize devices.Size = 8

// sizes are those of the bandwidth rows: steps of eight, and the largest.
func (o *RunOptions) sizes() []devices.Size {
	var all []devices.Size
	for n := o.MinSize; n < o.MaxSize; n *= 8 {
		all = append(all, n)
	}
	return append(all, o.MaxSize)
}

// Validate reports every fault of the options at once, joined.
func (o *RunOptions) Validate() error {
	var faults []error
	if o.MinSize == 0 || o.MinSize > o.MaxSize || o.MaxSize > 1<<40 {
		faults = append(faults, fmt.Errorf("sizes from %v to %v; use 1 B to 1 TiB, the smaller first", o.MinSize, o.MaxSize))
	}
	if o.Rounds < 1 || len(o.Peers) == 0 || len(o.Memory) == 0 {
		faults = append(faults, errors.New("nothing is measured: give an address, a memory and one round or more"))
	}
	return errors.Join(faults...)
}

// Run measures. Every byte of each row is verified; one that differs is an
// error.
func Run(ctx context.Context, o RunOptions) (report Report, err error) {
	if err = o.Validate(); err != nil {
		return Report{}, err
	}
	o.Rank = runnerRank
	s, err := newStation(ctx, o.Options)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, at := range o.Peers {
		if err := s.comm.Connect(ctx, serverRank, at); err != nil {
			return Report{}, err
		}
		r := &runner{station: s, opts: &o, network: at.Network}
		if at.Network == control.Unix {
			o.Progress("measuring by " + at.Addr)
		} else {
			o.Progress("measuring by " + at.String())
		}
		if err := r.all(ctx); err != nil {
			return Report{}, err
		}
		report.Rows = append(report.Rows, r.rows...)
		report.Channels = s.comm.Peers()[0].Channels
		report.Chunk = devices.Size(s.comm.Peers()[0].Chunk)
		if err := s.comm.Disconnect(serverRank); err != nil {
			return Report{}, err
		}
	}
	return report, nil
}

// runner measures one way to the peer.
type runner struct {
	*station

	opts    *RunOptions
	network control.Network
	rows    []Row
}

func (r *runner) all(ctx context.Context) error {
	if err := r.tags(ctx); err != nil {
		return fmt.Errorf("tags: %w", err)
	}
	for _, name := range r.names {
		if err := r.memory(ctx, name); err != nil {
			return fmt.Errorf("memory %s: %w", name, err)
		}
	}
	return nil
}

// ask asks the server for something and returns its reply.
func (r *runner) ask(ctx context.Context, a ask) (reply, error) {
	if err := r.send(ctx, a); err != nil {
		return reply{}, err
	}
	return r.answer(ctx)
}

func (r *runner) send(ctx context.Context, a ask) error {
	p, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return r.comm.SendMessage(ctx, serverRank, p)
}

func (r *runner) answer(ctx context.Context) (reply, error) {
	p, err := r.comm.RecvMessage(ctx, serverRank)
	if err != nil {
		return reply{}, err
	}
	var got reply
	if err := json.Unmarshal(p, &got); err != nil {
		return reply{}, fmt.Errorf("reply of the server: %w", err)
	}
	if got.Error != "" {
		return reply{}, fmt.Errorf("the server: %s", got.Error)
	}
	return got, nil
}

// tags measures half of the round trip of a tag.
func (r *runner) tags(ctx context.Context) error {
	rounds := warmUp + r.opts.Rounds
	if err := r.send(ctx, ask{Do: askEcho, Count: rounds}); err != nil {
		return err
	}
	times, err := timed(rounds, func(i int) error {
		if err := r.comm.SendTag(ctx, serverRank, wire.Tag(i)); err != nil {
			return err
		}
		tag, err := r.comm.RecvTag(ctx, serverRank)
		if err == nil && tag != wire.Tag(i) {
			err = fmt.Errorf("tag %d came back as %d", i, tag)
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := r.answer(ctx); err != nil {
		return err
	}
	for i := range times {
		times[i] /= 2
	}
	r.add(Row{Mode: "latency", Operation: "tag"}, times[warmUp:])
	return nil
}

// timed runs fn often and returns how long each time took, sorted but for the
// warm-up, which stays in front.
func timed(rounds int, fn func(i int) error) ([]time.Duration, error) {
	times := make([]time.Duration, rounds)
	for i := range times {
		start := time.Now()
		if err := fn(i); err != nil {
			return nil, err
		}
		times[i] = time.Since(start)
	}
	return times, nil
}

// add makes a row of times.
func (r *runner) add(row Row, times []time.Duration) {
	slices.Sort(times)
	row.Transport = r.network
	row.Count = len(times)
	row.MedianUS = micros(times[len(times)/2])
	row.P99US = micros(times[min(len(times)-1, len(times)*99/100)])
	if row.Mode == "bandwidth" {
		row.GBs = float64(row.Bytes) / (row.MedianUS * 1e3)
	}
	r.rows = append(r.rows, row)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// memory measures puts and gets of one kind of memory.
func (r *runner) memory(ctx context.Context, name devices.Name) (err error) {
	local, err := r.take(ctx, name, r.opts.MaxSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.free(context.WithoutCancel(ctx))) }()
	got, err := r.ask(ctx, ask{Do: askOpen, Memory: name, Size: r.opts.MaxSize})
	if err != nil {
		return err
	}
	d, err := wire.ParseDescriptor(got.Descriptor)
	if err != nil {
		return err
	}
	t := &target{runner: r, name: name, local: local.buffer, remote: d}
	if latencySize <= r.opts.MaxSize {
		for _, op := range []string{"put", "get"} {
			if err := t.measure(ctx, "latency", op, latencySize, r.opts.Rounds); err != nil {
				return err
			}
		}
	}
	for _, n := range r.opts.sizes() {
		times := int(min(max(uint64(r.opts.Bytes/n), minTimes), maxTimes))
		for _, op := range []string{"put", "get"} {
			if err := t.measure(ctx, "bandwidth", op, n, times); err != nil {
				return err
			}
		}
	}
	return nil
}

// target is one kind of memory at both ends.
type target struct {
	*runner

	name   devices.Name
	local  *region.Buffer
	remote wire.Descriptor
	// seed is another one for each row, so that what an earlier row has left
	// is not taken for this one's.
	seed uint64
}

// measure makes one row.
func (t *target) measure(ctx context.Context, mode, operation string, n devices.Size, times int) error {
	t.seed++
	op := comm.Op{Local: t.local, Remote: t.remote, Size: n}
	do := t.comm.Put
	if operation == "get" {
		do = t.comm.Get
	}
	if err := t.prepare(ctx, operation, n); err != nil {
		return err
	}
	took, err := timed(warmUp+times, func(int) error { return do(ctx, serverRank, op) })
	if err != nil {
		return fmt.Errorf("%s of %v: %w", operation, n, err)
	}
	differs, err := t.differs(ctx, operation, n)
	if err != nil {
		return err
	}
	if differs >= 0 {
		return fmt.Errorf("%s of %v: byte %d is wrong", operation, n, differs)
	}
	t.add(Row{Mode: mode, Operation: operation, Memory: t.name, Bytes: n, Verified: true}, took[warmUp:])
	return nil
}

// prepare writes the content to where the operation takes it from.
func (t *target) prepare(ctx context.Context, operation string, n devices.Size) error {
	if operation == "put" {
		return write(ctx, t.local, t.seed, n)
	}
	_, err := t.ask(ctx, ask{Do: askFill, Seed: t.seed, Size: n})
	return err
}

// differs looks at every byte where the operation has put them.
func (t *target) differs(ctx context.Context, operation string, n devices.Size) (int64, error) {
	if operation == "get" {
		return verify(ctx, t.local, t.seed, n)
	}
	got, err := t.ask(ctx, ask{Do: askVerify, Seed: t.seed, Size: n})
	return got.Differs, err
}
