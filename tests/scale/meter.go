package main

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// meter counts the traffic between nodes and service: names and values, without the
// overhead of a protocol.
type meter struct {
	calls  atomic.Uint64
	up     atomic.Uint64 // bytes to the service
	down   atomic.Uint64 // bytes of answers
	events atomic.Uint64
	pushed atomic.Uint64 // bytes of events
}

// usage is a snapshot of the meter, the clock and the process's CPU time.
type usage struct {
	calls, up, down, events, pushed uint64
	wall, cpu                       time.Duration
}

func (m *meter) now() usage {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		ru = unix.Rusage{}
	}
	return usage{
		calls: m.calls.Load(), up: m.up.Load(), down: m.down.Load(), events: m.events.Load(), pushed: m.pushed.Load(),
		wall: time.Duration(time.Now().UnixNano()),
		cpu:  time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
	}
}

// since returns what has been used since an earlier snapshot.
func (m *meter) since(u usage) usage {
	now := m.now()
	return usage{
		calls: now.calls - u.calls, up: now.up - u.up, down: now.down - u.down,
		events: now.events - u.events, pushed: now.pushed - u.pushed,
		wall: now.wall - u.wall, cpu: now.cpu - u.cpu,
	}
}

// metered is a service with a meter for its traffic.
type metered struct {
	coord.Service
	m *meter
}

func size(entries []coord.Entry) (n uint64) {
	for _, e := range entries {
		n += uint64(len(e.Name) + len(e.Value))
	}
	return n
}

// Grant counts a call.
func (s *metered) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	s.m.calls.Add(1)
	return s.Service.Grant(ctx, ttl)
}

// Create counts a call and the bytes sent.
func (s *metered) Create(ctx context.Context, entries []coord.Entry, l coord.Lease) ([]coord.Result, error) {
	s.m.calls.Add(1)
	s.m.up.Add(size(entries))
	return s.Service.Create(ctx, entries, l)
}

// Replace counts a call and the bytes sent.
func (s *metered) Replace(ctx context.Context, entries []coord.Entry, l coord.Lease) ([]coord.Result, error) {
	s.m.calls.Add(1)
	s.m.up.Add(size(entries))
	return s.Service.Replace(ctx, entries, l)
}

// Delete counts a call and what goes up.
func (s *metered) Delete(ctx context.Context, entries []coord.Entry) ([]coord.Result, error) {
	s.m.calls.Add(1)
	s.m.up.Add(size(entries))
	return s.Service.Delete(ctx, entries)
}

// Get counts a call and the bytes received.
func (s *metered) Get(ctx context.Context, name string) (coord.Entry, error) {
	s.m.calls.Add(1)
	e, err := s.Service.Get(ctx, name)
	s.m.down.Add(size([]coord.Entry{e}))
	return e, err
}

// List counts a call and the bytes received.
func (s *metered) List(ctx context.Context, prefix, after string, limit int) ([]coord.Entry, coord.Revision, error) {
	s.m.calls.Add(1)
	entries, revision, err := s.Service.List(ctx, prefix, after, limit)
	s.m.down.Add(size(entries))
	return entries, revision, err
}

// Watch counts a call, and the events of the watch.
func (s *metered) Watch(ctx context.Context, prefix string, after coord.Revision) (coord.Watch, error) {
	s.m.calls.Add(1)
	w, err := s.Service.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return &meteredWatch{Watch: w, m: s.m}, nil
}

type meteredWatch struct {
	coord.Watch
	m *meter
}

// Next counts the events and their bytes.
func (w *meteredWatch) Next(ctx context.Context) ([]coord.Event, error) {
	events, err := w.Watch.Next(ctx)
	w.m.events.Add(uint64(len(events)))
	for _, ev := range events {
		w.m.pushed.Add(size([]coord.Entry{ev.Entry}))
	}
	return events, err
}
