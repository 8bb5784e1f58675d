package perf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The modes of rows.
const (
	latency   = "latency"
	bandwidth = "bandwidth"
)

// latencySize is the size, in bytes, of the operations whose latency is measured.
const latencySize devices.Size = 8

// Run runs the measurements. Every byte of each row is verified; a wrong byte is an error.
func Run(ctx context.Context, o RunOptions) (report Report, err error) {
	if err = o.Validate(); err != nil {
		return Report{}, err
	}
	o.Rank = runnerRank
	s, err := newStation(ctx, &o.Options)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }() //nolint:contextcheck // cleanup must not depend on the context
	r := &runner{station: s, opts: &o, report: Report{GB: 1e9}}
	for i, t := range o.Transports {
		for j, at := range o.Peers {
			last := i == len(o.Transports)-1 && j == len(o.Peers)-1
			if err := r.session(ctx, t, at, last); err != nil {
				return Report{}, err
			}
		}
	}
	return r.report, nil
}

// runner runs the measurements.
type runner struct {
	*station

	opts   *RunOptions
	report Report
	// peer is the current session, and named the transport that was requested for it.
	peer  comm.Peer
	named comm.Transport
}

// settle bounds the time until a server notices that the previous runner has disconnected.
const settle = 2 * time.Second

// connect makes the session. The rank may still be in use by the previous session, of this
// runner or of one that has just ended: then connect retries for a while.
func (r *runner) connect(ctx context.Context, at control.Address) error {
	soon, stop := context.WithTimeout(ctx, settle)
	defer stop()
	for {
		err := r.comm.Connect(ctx, serverRank, at)
		if !errors.Is(err, control.ErrTaken) {
			return err
		}
		select {
		case <-soon.Done():
			return err
		case <-time.After(settle / 100):
		}
	}
}

// session measures one route to the server.
func (r *runner) session(ctx context.Context, t comm.Transport, at control.Address, last bool) (err error) {
	r.named = t
	var only []comm.Transport
	if t != Auto {
		only = append(only, t)
	}
	if err = r.open(only); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.hangUp()) }() //nolint:contextcheck // cleanup must not depend on the context
	if err = r.connect(ctx, at); err != nil {
		return err
	}
	if err = r.connected(at); err != nil {
		return err
	}
	if err = r.all(ctx); err != nil {
		return err
	}
	_, err = r.ask(ctx, ask{Do: askEnd, Last: last})
	return err
}

// connected records and reports the properties of the session.
func (r *runner) connected(at control.Address) error {
	peers := r.comm.Peers()
	if len(peers) != 1 {
		return fmt.Errorf("%s: %w", serverRank, control.ErrDisconnected)
	}
	r.peer = peers[0]
	r.report.Channels, r.report.Chunk = r.peer.Channels, devices.Size(r.peer.Chunk)
	r.report.Sessions = append(r.report.Sessions, Session{
		Address: at.String(), Transport: r.peer.Transport, Because: r.peer.Because, Network: r.peer.Network, Protection: r.peer.Cover.String(),
		Channels: r.peer.Channels, Chunk: devices.Size(r.peer.Chunk),
	})
	r.opts.Progress(fmt.Sprintf("measuring by %s, transport %s, protection %s%s", at, r.peer.Transport, r.peer.Cover, because(r.peer.Because)))
	return nil
}

// because formats the reasons why transports are not used.
func because(reasons []string) string {
	return strings.Join(append([]string{""}, reasons...), "; not ")
}

func (r *runner) all(ctx context.Context) error {
	if r.wants(OpTag) {
		if err := r.tags(ctx); err != nil {
			return fmt.Errorf("tags: %w", err)
		}
	}
	if !r.wants(OpPut, OpGet, OpSend, OpRecv, OpBounce) {
		return nil
	}
	for _, pair := range r.opts.pairs(r.names) {
		if err := r.pair(ctx, pair[0], pair[1]); err != nil {
			return fmt.Errorf("memory %s with %s: %w", pair[0], pair[1], err)
		}
	}
	return nil
}

// wants reports whether any of some operations is to be measured.
func (r *runner) wants(some ...string) bool {
	return slices.ContainsFunc(some, func(op string) bool { return slices.Contains(r.opts.Operations, op) })
}

// ask sends a request to the server and returns its reply.
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

// askMemory sends a request for memory and returns its descriptor.
func (r *runner) askMemory(ctx context.Context, a ask) (wire.Descriptor, error) {
	got, err := r.ask(ctx, a)
	if err != nil {
		return wire.Descriptor{}, err
	}
	return wire.ParseDescriptor(got.Descriptor)
}

// tags measures half of the round trip of a tag.
func (r *runner) tags(ctx context.Context) error {
	row := Row{Mode: latency, Operation: OpTag, Transport: r.peer.Transport, Depth: 1}
	return r.roundTrips(ctx, row, ask{Do: askEcho}, func(i int) error {
		if err := r.comm.SendTag(ctx, serverRank, wire.Tag(i)); err != nil {
			return err
		}
		tag, err := r.comm.RecvTag(ctx, serverRank)
		if err == nil && tag != wire.Tag(i) {
			err = fmt.Errorf("tag %d was returned as %d", i, tag)
		}
		return err
	})
}

// roundTrips adds a latency row for half of the duration of fn, whose other side is a
// request that the server executes.
func (r *runner) roundTrips(ctx context.Context, row Row, a ask, fn func(i int) error) error {
	a.Count = r.opts.WarmUp + r.opts.Rounds
	took, err := r.beside(ctx, a, a.Count, fn)
	if err != nil {
		return err
	}
	for i := range took {
		took[i] /= 2
	}
	r.add(row, took[r.opts.WarmUp:])
	return nil
}

// beside times fn while the server executes a request.
func (r *runner) beside(ctx context.Context, a ask, rounds int, fn func(i int) error) ([]time.Duration, error) {
	if err := r.send(ctx, a); err != nil {
		return nil, err
	}
	took, err := timed(rounds, fn)
	if err != nil {
		return nil, err
	}
	_, err = r.answer(ctx)
	return took, err
}

// timed calls fn repeatedly and returns the duration of each call, in order.
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

// add adds a row for some times, each of row.Depth operations.
func (r *runner) add(row Row, times []time.Duration) {
	median, p99 := quantiles(times)
	row.Network = r.peer.Network
	row.Count = len(times)
	each := func(d time.Duration) float64 {
		return float64(d) / float64(time.Microsecond) / float64(row.Depth)
	}
	var all time.Duration
	for _, d := range times {
		all += d
	}
	row.MedianUS, row.P99US = each(median), each(p99)
	row.MeanUS = each(all) / float64(len(times))
	if row.Mode == bandwidth {
		row.GBs = float64(row.Bytes) / (row.MedianUS * 1e3)
	}
	r.report.Rows = append(r.report.Rows, row)
}

// quantiles sorts values and returns their median and their 99th percentile.
func quantiles[T cmp.Ordered](all []T) (median, p99 T) {
	slices.Sort(all)
	return all[len(all)/2], all[min(len(all)-1, len(all)*99/100)]
}
