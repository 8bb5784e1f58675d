package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// middle is the size of a transfer that is begun together with others.
const middle = devices.MiB

// deep begins several transfers together, as the contenders do.
const deep = "16"

// How the contenders are started, for the notes.
const (
	iperfNote = "The better one of `iperf3 -c HOST -O 1 -t 1 -l 128K` and `-l 1M`: one stream, no zero copy, as received, without its first second."
	ucxNote   = "The better one of `ucx_perftest HOST -t TEST -s SIZE -O 0` and `-O 1`, with UCX_NET_DEVICES=lo on TCP, median of the rounds' overall_bw."
)

// streamRows put the transport beside a plain stream.
func (p *peers) streamRows() []row {
	return []row{{
		name: fmt.Sprintf("TCP put of %s over loopback", short(p.opts.large)), unit: gigabytes,
		sides: []side{
			p.transfer(p.lo, "put", "tcp", "put", p.opts.large),
			p.transfer(p.lo, "put, 2 channels", "tcp", "put", p.opts.large, "--channels", "2"),
			p.iperf(p.lo),
		},
		wants: []want{{of: "put", against: "iperf3", bound: 0.80}},
		notes: []string{
			iperfNote,
			"A put is one at a time, and complete when the server has acknowledged its last byte.",
		},
	}}
}

// cableRows are the same between two network namespaces.
func (p *peers) cableRows() []row {
	return []row{{
		name: fmt.Sprintf("TCP put of %s between two network namespaces", short(p.opts.large)), unit: gigabytes,
		sides: []side{p.transfer(p.veth, "put", "tcp", "put", p.opts.large), p.iperf(p.veth)},
		wants: []want{{of: "put", against: "iperf3", bound: 0.80}},
		notes: []string{"Over a pair of veth devices. " + iperfNote},
	}}
}

// ucxRows put the transports beside what UCX does by itself.
func (p *peers) ucxRows() []row {
	var rows []row
	for _, size := range []devices.Size{middle, p.opts.large} {
		args := []string{"--depth", deep}
		if size == p.opts.large {
			args = nil
		}
		rows = append(rows, row{
			name: fmt.Sprintf("TCP, %s, beside UCX_TLS=tcp", short(size)), unit: gigabytes,
			sides: []side{
				p.transfer(p.lo, "put", "tcp", "put", size, args...),
				p.ucxRate(p.lo, "tcp", "ucp_put_bw", size),
				p.transfer(p.lo, "get", "tcp", "get", size, args...),
				p.ucxRate(p.lo, "tcp", "ucp_get", size),
			},
			wants: []want{
				{of: "put", against: "ucp_put_bw", bound: 1.5},
				{of: "get", against: "ucp_get", bound: 1.5},
			},
			notes: []string{ucxNote, "Puts and gets of 1 MiB are begun " + deep + " together, larger ones one at a time."},
		})
	}
	return rows
}

// tagRows are the times of small things.
func (p *peers) tagRows() []row {
	return []row{{
		name: "tag, round trip / 2", unit: micros,
		sides: []side{
			p.tag(p.lo, "TCP", "tcp", 0), p.tag(p.lo, "Unix socket", "tcp", 1),
			p.ucxLatency(p.lo, "tag_lat, tcp", "tcp"),
		},
		wants: []want{
			{of: "TCP", against: "tag_lat, tcp", bound: 2, atMost: true},
			{of: "Unix socket", against: "tag_lat, tcp", bound: 2, atMost: true},
		},
		notes: []string{
			"`ucx_perftest HOST -t tag_lat -s 8`, its 50th percentile. It spins while it waits; hmcfs sleeps, so that waiting takes no",
			"processor, and the time has the kernel's wake-up of a process in it.",
		},
	}}
}

// allocationRows count what a put and a get allocate.
func (p *peers) allocationRows() []row {
	return []row{{
		name: "allocations", unit: factor, custom: p.allocations,
		wants: []want{
			{of: "put", bound: 0.01, atMost: true},
			{of: "get", bound: 0.01, atMost: true},
		},
		notes: []string{
			"Of one operation of 256 KiB over TCP, both sides together: two communicators in one process, all that the process",
			fmt.Sprintf("allocates while %d operations run, divided by them.", allocationOps),
		},
	}}
}

// allocationOps is how many operations are counted together.
const allocationOps = 2000

// allocations counts.
func (p *peers) allocations(ctx context.Context, rounds int) (res result, err error) {
	const size = 256 * devices.KiB
	e, err := transport.New(transport.Options{})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	var ends [2]*comm.Communicator
	var memory [2]*region.Buffer
	defer func() {
		for i := range ends {
			if ends[i] != nil {
				err = errors.Join(err, ends[i].Close())
			}
			if memory[i] != nil {
				err = errors.Join(err, memory[i].Close(context.WithoutCancel(ctx)))
			}
		}
	}()
	secret := make([]byte, 32) // of two ends of one process
	for i := range ends {
		if ends[i], err = comm.New(comm.Options{
			Rank: wire.Rank(i), Secret: secret, Engine: e, Transports: []comm.Transport{comm.TCP},
		}); err != nil {
			return res, err
		}
		if memory[i], err = ends[i].Table().Alloc(size); err != nil {
			return res, err
		}
	}
	at, err := ends[0].Listen(ctx, control.Address{Network: control.TCP, Addr: "127.0.0.1:0"})
	if err != nil {
		return res, err
	}
	if err = ends[1].Connect(ctx, 0, at); err != nil {
		return res, err
	}
	d, err := ends[0].Share(ctx, 1, memory[0], wire.Readable|wire.Writable)
	if err != nil {
		return res, err
	}
	op := comm.Op{Local: memory[1], Remote: d, Size: size}
	for _, kind := range []struct {
		name string
		do   func(context.Context, wire.Rank, comm.Op) error
	}{{"put", ends[1].Put}, {"get", ends[1].Get}} {
		f := figure{name: kind.name}
		for range rounds {
			n, err := allocated(func() error { return kind.do(ctx, 0, op) })
			if err != nil {
				return res, err
			}
			f.series = append(f.series, n)
		}
		res.figures = append(res.figures, f)
	}
	return res, nil
}

// allocated is how many objects an operation allocates, on average.
func allocated(do func() error) (float64, error) {
	var before, after runtime.MemStats
	for i := range 2 * allocationOps {
		if i == allocationOps { // what is made once has been made
			runtime.ReadMemStats(&before)
		}
		if err := do(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / allocationOps, nil
}
