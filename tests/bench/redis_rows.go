package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// inOneCall is the number of keys of a call, and of requests in a pipeline of Redis.
const inOneCall = 100

// remote is a client by a session with the mount, and memory that it shares with the daemon:
// the first half has what its keys name, and the second is the target of reads.
type remote struct {
	session    *client.Session
	prefix     string
	keys       []string
	old        []string // all keys of the memory
	named      int      // how many keys it has had
	src, dst   []hetero.DeviceBlobList
	all        []byte
	size, half devices.Size
}

// newRemote opens a session with memory for a number of keys of one size.
func newRemote(ctx context.Context, undo *measure.Undo, socket, prefix string, n int, size devices.Size) (*remote, error) {
	s, err := client.OpenSession(ctx, socket)
	if err != nil {
		return nil, err
	}
	undo.Later(s.Close)
	r := &remote{session: s, prefix: prefix, size: size, half: devices.Size(n) * size}
	id, all, err := sharedMemory(ctx, s, 2*r.half)
	if err != nil {
		return nil, err
	}
	undo.Later(func() error { return unix.Munmap(all) })
	r.all, r.keys = all, make([]string, n)
	if _, err = rand.Read(all[:r.half]); err != nil {
		return nil, err
	}
	for i := range n {
		off := devices.Offset(size) * devices.Offset(i)
		r.src = append(r.src, hetero.DeviceBlobList{Device: "host", Blobs: []hetero.Blob{{Memory: id, Off: off, Size: size}}})
		r.dst = append(r.dst, hetero.DeviceBlobList{Device: "host", Blobs: []hetero.Blob{{Memory: id, Off: off + devices.Offset(r.half), Size: size}}})
	}
	r.rename()
	return r, nil
}

// rename gives the client other keys than it has had before: a key that has been set keeps what
// it names.
func (r *remote) rename() {
	for i := range r.keys {
		r.keys[i] = r.prefix + "-" + strconv.Itoa(r.named)
		r.named++
		r.old = append(r.old, r.keys[i])
	}
}

// sharedMemory registers new memory of this process with a session.
func sharedMemory(ctx context.Context, s *client.Session, n devices.Size) (hetero.MemoryID, []byte, error) {
	f, err := share.Sealed("bench", n)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = f.Close() }() // the session has its own descriptor
	all, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return 0, nil, err
	}
	place := 0
	id, err := s.PreRegister(ctx, hetero.Memory{
		Device: "host", Files: []*os.File{f},
		Share: &share.Memory{Family: "host", Size: n, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &place, Size: n}}},
	})
	return id, all, err
}

// setFresh names the memory by keys that are new.
func (r *remote) setFresh(ctx context.Context) error {
	r.rename()
	return r.mset(ctx)
}

// mset names the memory by its keys.
func (r *remote) mset(ctx context.Context) error {
	done, err := r.session.DevMSet(ctx, r.keys, r.src)
	return errors.Join(err, done.Err())
}

// d2h copies the bytes of the memory under its keys.
func (r *remote) d2h(ctx context.Context) error {
	done, err := r.session.MSetD2H(ctx, r.keys, r.src, hetero.SetOptions{Existing: hetero.ExistingReplace})
	return errors.Join(err, done.Err())
}

// mget reads all keys.
func (r *remote) mget(ctx context.Context) error {
	done, err := r.session.DevMGet(ctx, r.keys, r.dst, hetero.GetOptions{})
	return errors.Join(err, done.Err())
}

// check compares what mget has read.
func (r *remote) check() error {
	for i, c := range r.all[:r.half] {
		if r.all[int(r.half)+i] != c {
			return fmt.Errorf("byte %d came back as %d, not %d", i, r.all[int(r.half)+i], c)
		}
	}
	return nil
}

// forget deletes all keys.
func (r *remote) forget(ctx context.Context) error {
	var errs []error
	for keys := range slices.Chunk(r.old, hetero.MaxKeys) {
		done, err := r.session.DevDelete(ctx, keys)
		errs = append(errs, err, done.Err())
	}
	r.old = nil
	r.rename()
	return errors.Join(errs...)
}

// calls returns a run of repeated calls: the seconds that each takes, on average.
func calls(n int, fn func(context.Context) error) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		begin := time.Now()
		for range n {
			if err := fn(ctx); err != nil {
				return 0, err
			}
		}
		return time.Since(begin).Seconds() / float64(n), nil
	}
}

// beside compares sessions with Redis.
type beside struct {
	lobby *lobby
	redis *redis
	// remotes are the clients by the names of their keys.
	remotes map[string]*remote
}

// open starts Redis once, and makes a client.
func (c *beside) open(ctx context.Context, prefix string, n int, size devices.Size) (r *remote, err error) {
	if c.redis == nil {
		var started *redis
		if started, err = startRedis(ctx, c.lobby.lab.dir); err != nil {
			return nil, err
		}
		c.redis = started
		c.lobby.Later(c.redis.Stop)
		c.remotes = map[string]*remote{}
	}
	if r = c.remotes[prefix]; r == nil {
		r, err = newRemote(ctx, &c.lobby.Undo, c.lobby.lab.mnt.Socket(), prefix, n, size)
		c.remotes[prefix] = r
	}
	return r, err
}

// load describes a client of a side: its keys, of one size, and how often it calls.
type load struct {
	prefix      string
	keys, calls int
	size        devices.Size
}

// measured returns a side that prepares a client's keys with one call, and measures another.
func (c *beside) measured(name string, l load, prepare, call func(*remote, context.Context) error) side {
	return side{Name: name, Run: func(ctx context.Context) (float64, error) {
		r, err := c.open(ctx, l.prefix, l.keys, l.size)
		if err == nil {
			err = prepare(r, ctx)
		}
		for range l.calls/10 + 1 { // a first part is not timed, as in the programs of Redis
			if err == nil {
				err = call(r, ctx)
			}
		}
		if err != nil {
			return 0, err
		}
		took, err := calls(l.calls, func(ctx context.Context) error { return call(r, ctx) })(ctx)
		if err == nil {
			err = errors.Join(r.mget(ctx), r.check(), r.forget(ctx))
		}
		return took, err
	}}
}

// warmed returns sides that run once before they count: a server that has just started gets its memory from the kernel page by page.
func warmed(sides ...side) []side {
	for i := range sides {
		run, warm := sides[i].Run, false
		sides[i].Run = func(ctx context.Context) (float64, error) {
			if !warm {
				if _, err := run(ctx); err != nil {
					return 0, err
				}
				warm = true
			}
			return run(ctx)
		}
	}
	return sides
}

func (c *beside) server(ctx context.Context) error {
	_, err := c.open(ctx, "bench", 1, smallKey)
	return err
}

// rows are the rows beside Redis.
func (c *beside) rows() []row {
	var rows []row
	for _, s := range []struct {
		size  devices.Size
		bound float64
	}{{smallKey, 0.7}, {64 * devices.KiB, 1.0}, {devices.MiB, 0.5}} {
		rows = append(rows, c.single("get", s.size, s.bound), c.single("set", s.size, s.bound))
	}
	calls := c.lobby.opts.calls
	return append(rows, c.many("get", calls, 3), c.many("set", calls/20, 1), c.many("set", calls/4, 0), c.crowdRow(), c.betweenProcesses(), c.handOver(), c.opened())
}

// single compares calls of one key, from Go and from Python.
func (c *beside) single(call string, size devices.Size, bound float64) row {
	times := max(1, c.lobby.opts.calls*int(smallKey)/int(max(smallKey, size/16)))
	one := load{prefix: fmt.Sprintf("one-%d", uint64(size)), keys: 1, calls: times, size: size}
	ours := c.measured("mget", one, (*remote).mset, (*remote).mget)
	extra := c.measured("h2d", one, (*remote).d2h, (*remote).mget)
	command := "GET"
	if call == "set" {
		command = "SET"
		ours = c.measured("mset", one, (*remote).mset, (*remote).setFresh)
		extra = c.measured("d2h", one, (*remote).d2h, (*remote).d2h)
	}
	python := func(name, store string, at func() string) side {
		return side{Name: name, Prepare: c.server, Run: func(ctx context.Context) (float64, error) {
			return c.redis.python(ctx, store, at(), call, strconv.FormatUint(uint64(size), 10), strconv.Itoa(times))
		}}
	}
	return row{
		name: call + " one key of " + short(size) + ", beside Redis", unit: micros,
		sides: warmed(
			ours, extra,
			side{Name: "redis-benchmark", Prepare: c.server, Run: func(ctx context.Context) (float64, error) {
				rate, err := c.redis.rate(ctx, command, size, times, 1)
				return 1 / rate, err
			}},
			python("Python", "hmcfs", func() string { return c.lobby.lab.mnt.Point }),
			python("redis-py", "redis", func() string { return c.redis.Socket }),
		),
		wants: []want{
			{of: ours.Name, against: "redis-benchmark", bound: bound, atMost: true},
			{of: "Python", against: "redis-py", bound: 1, atMost: true},
		},
		notes: []string{
			fmt.Sprintf("Each the mean of %d calls of one client by a Unix socket, of %s of the same size in Redis. mset names", times, command),
			"memory of the client by a new key, d2h copies it; mget reads either into registered memory. Python is the package hmcfs. Each side runs",
			"once before it counts.",
		},
	}
}

// many compares calls of many keys with pipelines. bound is that of the ratio, 0 for none. Each call to set them has other
// keys; the records of some 12 000 need not be in Badger before more are accepted.
func (c *beside) many(call string, times int, bound float64) row {
	times = max(1, times)
	name, command, run := "mget", "GET", (*remote).mget
	if call == "set" {
		name, command, run = "mset", "SET", (*remote).setFresh
	}
	ours := c.measured(name, load{prefix: "many", keys: inOneCall, calls: times, size: smallKey}, (*remote).mset, run)
	each := ours.Run
	ours.Run = func(ctx context.Context) (float64, error) {
		took, err := each(ctx)
		return inOneCall / took, err
	}
	var wants []want
	label := fmt.Sprintf("%s %d keys of %s in one call", call, inOneCall, short(smallKey))
	if bound > 0 {
		wants = []want{{of: name, against: "redis-benchmark", bound: bound}}
	} else {
		label += fmt.Sprintf(", %d keys in all", inOneCall*times)
	}
	return row{
		name: label + ", beside Redis", unit: perSecond,
		sides: warmed(ours, side{Name: "redis-benchmark", Prepare: c.server, Run: func(ctx context.Context) (float64, error) {
			return c.redis.rate(ctx, command, smallKey, inOneCall*times, inOneCall)
		}}),
		wants: wants,
		notes: []string{fmt.Sprintf("Keys per second in %d calls; redis-benchmark has %d requests in a pipeline. Both run once before they count.", times, inOneCall)},
	}
}

// handed is the size of a hand-over.
func (c *beside) handed() devices.Size { return min(16*devices.MiB, c.lobby.opts.large) }

// handOver compares a hand-over between two sessions with the copy of its bytes.
func (c *beside) handOver() row {
	size := c.handed()
	both := func(ctx context.Context) (from, to *remote, err error) {
		if from, err = c.open(ctx, "hand-over", 1, size); err == nil {
			to, err = c.open(ctx, "hand-over-to", 1, size)
		}
		return from, to, err
	}
	return row{
		name: "hand-over of " + short(size) + " between two sessions of one process", unit: micros,
		sides: []side{
			{Name: "hand-over", Run: func(ctx context.Context) (float64, error) {
				from, to, err := both(ctx)
				if err != nil {
					return 0, err
				}
				took, err := calls(times, func(ctx context.Context) error { return handOver(ctx, from, to) })(ctx)
				for i, b := range from.all[:size] {
					if err == nil && to.all[int(size)+i] != b {
						err = fmt.Errorf("byte %d was handed over as another", i)
					}
				}
				return took, err
			}},
			{Name: "copy", Run: func(ctx context.Context) (float64, error) {
				from, to, err := both(ctx)
				if err != nil {
					return 0, err
				}
				return calls(times, func(context.Context) error {
					copy(to.all[size:], from.all[:size])
					return nil
				})(ctx)
			}},
		},
		notes: []string{
			"From the start of publish to the end of subscribe, which is called after it, again and again with the same bytes; the copy",
			"is between the same memory.",
		},
	}
}

func handOver(ctx context.Context, from, to *remote) error {
	given, err := from.session.DevPublish(ctx, from.keys, from.src)
	if err != nil {
		return err
	}
	got, err := to.session.DevSubscribe(ctx, from.keys, to.dst, hetero.SubscribeOptions{})
	if err != nil {
		return err
	}
	return errors.Join(got[0].Wait(ctx), given[0].Wait(ctx))
}

// opened compares opening a large file as an array with a small one, from Python.
func (c *beside) opened() row {
	large := devices.GiB
	if c.lobby.opts.large < 64*devices.MiB {
		large = c.lobby.opts.large
	}
	path := func(size devices.Size) string { return c.lobby.lab.in("sim0", fmt.Sprintf("open-%d", uint64(size))) }
	one := func(size devices.Size) side {
		return side{Name: short(size), Prepare: c.server, Run: func(ctx context.Context) (float64, error) {
			if err := c.grown(path(size), size); err != nil {
				return 0, err
			}
			return c.redis.python(ctx, "open", c.lobby.lab.mnt.Point, path(size), "0", strconv.Itoa(c.lobby.opts.calls/10+1))
		}}
	}
	first, second := one(large), one(devices.MiB)
	return row{
		name: "open " + short(large) + " as an array, its first byte", unit: micros,
		sides: []side{first, second},
		wants: []want{{of: first.Name, bound: 1e-3, atMost: true}, {of: first.Name, against: second.Name, bound: 1.2, atMost: true}},
		notes: []string{"From Python, with the package hmcfs: open, the array, one byte of it, close."},
		after: func() error { return removeAll(path(large), path(devices.MiB)) },
	}
}

// grown makes a file whose last byte was written.
func (c *beside) grown(path string, size devices.Size) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{1}, int64(size)-1)
	return errors.Join(err, f.Close())
}
