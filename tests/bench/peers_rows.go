package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// middle is the size of a transfer that runs concurrently with others.
const middle = devices.MiB

// deep is the number of concurrent transfers, as with the contenders.
const deep = "16"

// The commands of the contenders, for the notes.
const (
	iperfNote    = "The better one of `iperf3 -c HOST -O 1 -t 1 -l 128K` and `-l 1M`: one stream, no zero copy, as received, without its first second."
	depthNote    = "Puts and gets of 1 MiB are begun " + deep + " together, larger ones one at a time."
	messagesNote = "The put is UCX's own (--ucx-one-sided), as ucp_put_bw is. Puts in messages are what the transport does by default, " +
		"with all of UCX but its TCP."
	ucxNote = "The better one of `ucx_perftest HOST -t TEST -s SIZE -O 0` and `-O 1`, with UCX_NET_DEVICES=lo on TCP, median of the rounds' overall_bw."
)

// streamRows compares the transport with a plain stream.
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

// cableRows makes the same comparison between two network namespaces.
func (p *peers) cableRows() []row {
	return []row{{
		name: fmt.Sprintf("TCP put of %s between two network namespaces", short(p.opts.large)), unit: gigabytes,
		sides: []side{p.transfer(p.veth, "put", "tcp", "put", p.opts.large), p.iperf(p.veth)},
		wants: []want{{of: "put", against: "iperf3", bound: 0.80}},
		notes: []string{"Over a pair of veth devices. " + iperfNote},
	}}
}

// besideUCXRows compares TCP with UCX over TCP.
func (p *peers) besideUCXRows() []row {
	var rows []row
	for _, size := range []devices.Size{middle, p.opts.large} {
		args := p.depth(size)
		rows = append(rows, row{
			name: fmt.Sprintf("TCP, %s, beside UCX_TLS=tcp", short(size)), unit: gigabytes,
			sides: []side{
				p.transfer(p.lo, "put", "tcp", "put", size, args...),
				p.ucxRate("tcp", "ucp_put_bw", size),
				p.transfer(p.lo, "get", "tcp", "get", size, args...),
				p.ucxRate("tcp", "ucp_get", size),
			},
			wants: []want{
				{of: "put", against: "ucp_put_bw", bound: 1.5},
				{of: "get", against: "ucp_get", bound: 1.5},
			},
			notes: []string{ucxNote, depthNote},
		})
	}
	return rows
}

// depth returns the flags to run transfers concurrently if they are not large.
func (p *peers) depth(size devices.Size) []string {
	if size >= p.opts.large {
		return nil
	}
	return []string{"--depth", deep}
}

// ucxRows compares UCX as a transport with UCX alone.
func (p *peers) ucxRows() []row {
	var rows []row
	for _, tls := range ucxLists() {
		for _, size := range []devices.Size{middle, p.opts.large} {
			rows = append(rows, row{
				name: fmt.Sprintf("UCX transport, put of %s, UCX_TLS=%s", short(size), tls), unit: gigabytes,
				sides: []side{
					p.transfer(p.ucx[tls], "put", "ucx", "put", size, p.depth(size)...),
					p.transfer(p.lo, "put in messages", "ucx", "put", size, p.depth(size)...),
					p.ucxRate(tls, "ucp_put_bw", size),
				},
				wants: []want{{of: "put", against: "ucp_put_bw", bound: 0.80}},
				notes: []string{ucxNote, depthNote, messagesNote},
			})
		}
	}
	return rows
}

// sharedRows compares shared memory with a plain copy.
func (p *peers) sharedRows() []row {
	size := p.opts.large
	return []row{{
		name: fmt.Sprintf("shm put of %s", short(size)), unit: gigabytes,
		sides: []side{
			p.transfer(p.lo.unix(), "put", "shm", "put", size),
			{Name: "memcpy", Run: func(ctx context.Context) (float64, error) { return p.memcpy(ctx, size) }},
		},
		wants: []want{{of: "put", against: "memcpy", bound: 0.70}},
		notes: []string{
			"The copy is Go's, by a process that has mapped a memfd of its own and one that another process has made, filled and",
			"mapped; both have their pages.",
		},
	}}
}

// deviceRows compares transfers of device memory that is passed directly with the steps of a
// program that can't do that: all of it to the host, to the other host, to the device there.
func (p *peers) deviceRows() []row {
	var rows []row
	for _, memory := range deviceNames() {
		at := p.device[memory]
		rows = append(rows, row{
			name: fmt.Sprintf("put of %s by TCP, %s to %s", short(p.opts.large), memory, memory), unit: gigabytes,
			sides: []side{
				p.transfer(at, "put", "tcp", "put", p.opts.large), p.transfer(at, "by the host", "tcp", "bounce", p.opts.large),
			},
			wants: []want{{of: "put", against: "by the host", bound: 1}},
			notes: []string{"By the host: all bytes to the host, to the other host, and to the device, one after the other."},
		})
	}
	return rows
}

// deviceNames returns the devices that are measured.
func deviceNames() []string { return []string{"sim:0", "opencl:0"} }

// tagRows measures the times of small operations.
func (p *peers) tagRows() []row {
	return []row{{
		name: "tag, round trip / 2", unit: micros,
		sides: []side{
			p.tag(p.lo, "TCP", "tcp"), p.tag(p.lo.unix(), "Unix socket", "tcp"), p.tag(p.lo.unix(), "shm", "shm"),
			p.ucxLatency("tag_lat, tcp", "tcp"), p.ucxLatency("tag_lat, posix", "posix"),
		},
		wants: []want{
			{of: "TCP", against: "tag_lat, tcp", bound: 2, atMost: true},
			{of: "Unix socket", against: "tag_lat, tcp", bound: 2, atMost: true},
			{of: "shm", against: "tag_lat, posix", bound: 3, atMost: true},
		},
		notes: []string{
			"`ucx_perftest HOST -t tag_lat -s 8`, its 50th percentile. It spins while it waits. A rank of hmcfs that waits for a tag",
			"asks for 50 µs over a socket, 100 µs over shared memory, and sleeps then; over a socket it sleeps at once for a while",
			"after it has asked in vain.",
		},
	}}
}

// allocationRows counts the allocations of a put and a get.
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

// allocationOps is the number of operations per count.
const allocationOps = 2000

// allocations counts the allocations.
func (p *peers) allocations(ctx context.Context, rounds int) (res result, err error) {
	const size = 256 * devices.KiB
	two, err := newTwo(ctx, size)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, two.close(ctx)) }()
	d, err := two.ends[0].Share(ctx, 1, two.memory[0], wire.Readable|wire.Writable)
	if err != nil {
		return res, err
	}
	op := comm.Op{Local: two.memory[1], Remote: d, Size: size}
	counted := func(do func(context.Context, wire.Rank, comm.Op) error) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			return allocated(func() error { return do(ctx, 0, op) })
		}
	}
	return inTurns(ctx, rounds, []side{{Name: "put", Run: counted(two.ends[1].Put)}, {Name: "get", Run: counted(two.ends[1].Get)}})
}

// allocated returns the number of objects that an operation allocates, on average.
func allocated(do func() error) (float64, error) {
	var before, after runtime.MemStats
	for i := range 2 * allocationOps {
		if i == allocationOps { // one-time allocations are done
			runtime.ReadMemStats(&before)
		}
		if err := do(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / allocationOps, nil
}
