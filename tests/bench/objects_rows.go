package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/transport"
)

const (
	// times is the number of times that one run moves a large transfer.
	times = 8
	// keySize is the size of a key in a call of many small keys.
	keySize = 128 * devices.KiB
	// blobSize is the size of a blob in a key of many small blobs.
	blobSize = 256 * devices.KiB
	// smallKey is the size of a key whose call is measured, not its bytes.
	smallKey = 4 * devices.KiB
)

// lane holds memory of two clients between which bytes are moved.
type lane struct {
	lobby    *lobby
	from, to devices.Name
	src, dst registered
	ready    bool
}

func (l *lane) name() string {
	if l.from == l.to {
		return "within " + string(l.from)
	}
	return "from " + string(l.from) + " to " + string(l.to)
}

// open allocates the memory once.
func (l *lane) open(ctx context.Context) (err error) {
	if l.ready {
		return nil
	}
	if l.src, err = l.lobby.giver.alloc(ctx, l.from, l.lobby.opts.large); err != nil {
		return err
	}
	l.dst, err = l.lobby.taker.alloc(ctx, l.to, l.lobby.opts.large)
	l.ready = err == nil
	return err
}

// moved returns a run of a function that moves the lane's bytes times over.
func (l *lane) moved(fn func(ctx context.Context) error) func(context.Context) (float64, error) {
	return bench.Timed(func(ctx context.Context) (int64, error) {
		return int64(times) * int64(l.lobby.opts.large), fn(ctx)
	})
}

// engineCopy measures moving the bytes without keys.
func (l *lane) engineCopy(ctx context.Context) error {
	for range times {
		_, err := l.lobby.engine.Copy(ctx, transport.DeviceSpan(l.dst.mem.All()), transport.DeviceSpan(l.src.mem.All()))
		if err != nil {
			return err
		}
	}
	return nil
}

// keys returns the names of n keys.
func keys(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("bench-%d", i)
	}
	return names
}

// publish offers the source under as many keys as are received.
func (l *lane) publish(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	_, err := l.lobby.giver.client.DevPublish(ctx, keys(times), l.lists(l.src))
	return err
}

// lists returns, for each key, the whole memory as one blob.
func (l *lane) lists(m registered) []hetero.DeviceBlobList {
	lists := make([]hetero.DeviceBlobList, times)
	for i := range lists {
		lists[i] = m.blobs(0, 1, l.lobby.opts.large)
	}
	return lists
}

// subscribe receives the keys one after the other.
func (l *lane) subscribe(ctx context.Context) error {
	lists := l.lists(l.dst)
	for i, key := range keys(times) {
		futures, err := l.lobby.taker.client.DevSubscribe(ctx, []string{key}, lists[i:i+1], hetero.SubscribeOptions{})
		if err == nil {
			err = futures[0].Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set binds the keys to the source, repeatedly with the same blobs.
func (l *lane) set(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	r, err := l.lobby.giver.client.DevMSet(ctx, keys(times), l.lists(l.src))
	return errors.Join(err, r.Err())
}

// get reads the keys one after the other.
func (l *lane) get(ctx context.Context) error {
	lists := l.lists(l.dst)
	for i, key := range keys(times) {
		if _, err := l.lobby.taker.client.DevMGet(ctx, []string{key}, lists[i:i+1], hetero.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) forget() error {
	r, err := l.lobby.giver.client.DevDelete(context.Background(), keys(times))
	return errors.Join(err, r.Err())
}

// lanes returns the lanes of the targets.
func (b *lobby) lanes() []*lane {
	return []*lane{
		{lobby: b, from: "sim0", to: "sim0"}, {lobby: b, from: "ocl0", to: "ocl0"}, {lobby: b, from: "sim0", to: "sim1"},
	}
}

// handOverRows compares one-shot hand-overs with the engine's copy.
func (b *lobby) handOverRows() []row {
	var rows []row
	for _, l := range b.lanes() {
		rows = append(rows, l.row("subscribe", l.publish, l.subscribe,
			fmt.Sprintf("%d keys received one after the other; the copy is transport.Engine's, between the same memory.", times)))
	}
	return rows
}

// sharedRows measures reads of memory that another client has set.
func (b *lobby) sharedRows() []row {
	var rows []row
	for _, l := range b.lanes() {
		r := l.row("mget", l.set, l.get, fmt.Sprintf("%d keys read one after the other.", times))
		r.after = l.forget
		rows = append(rows, r)
	}
	return rows
}

// row compares a call with the engine's copy.
func (l *lane) row(call string, prepare, run func(context.Context) error, note string) row {
	return row{
		name: fmt.Sprintf("%s, %s %s", call, short(l.lobby.opts.large), l.name()), unit: gigabytes,
		sides: []side{
			{Name: call, Prepare: prepare, Run: l.moved(run)},
			{Name: "engine copy", Prepare: l.open, Run: l.moved(l.engineCopy)},
		},
		wants: []want{{of: call, against: "engine copy", bound: 0.85}},
		notes: []string{note},
	}
}

// hostRows measures copies to the host and back.
func (b *lobby) hostRows() []row {
	return []row{
		b.hostRow(fmt.Sprintf("d2h and h2d of %d keys of %s", b.opts.manyKeys, short(keySize)), b.opts.manyKeys, 1, keySize, 0.60),
		b.hostRow(fmt.Sprintf("d2h and h2d of %d blobs of %s", b.opts.manyBlobs, short(blobSize)), 1, b.opts.manyBlobs, blobSize, 0.70),
	}
}

// hostRow compares keys of many blobs with one contiguous key of the same bytes.
func (b *lobby) hostRow(name string, keyCount, blobCount int, size devices.Size, bound float64) row {
	total := devices.Size(keyCount) * devices.Size(blobCount) * size
	var src, dst registered
	prepare := func(ctx context.Context) (err error) {
		if src.mem == nil {
			if src, err = b.giver.alloc(ctx, "sim0", total); err != nil {
				return err
			}
			dst, err = b.taker.alloc(ctx, "sim0", total)
		}
		return err
	}
	lists := func(m registered, n, blobs int, size devices.Size) []hetero.DeviceBlobList {
		out := make([]hetero.DeviceBlobList, n)
		for i := range out {
			out[i] = m.blobs(devices.Offset(i)*devices.Offset(blobs)*devices.Offset(size), blobs, size)
		}
		return out
	}
	run := func(n, blobs int, size devices.Size) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			names := keys(n)
			rate, err := bench.Timed(func(ctx context.Context) (int64, error) {
				set, err := b.giver.client.MSetD2H(ctx, names, lists(src, n, blobs, size), hetero.SetOptions{Existing: hetero.ExistingFail})
				if err = errors.Join(err, set.Err()); err != nil {
					return 0, err
				}
				got, err := b.taker.client.MGetH2D(ctx, names, lists(dst, n, blobs, size), hetero.GetOptions{})
				return 2 * int64(total), errors.Join(err, got.Err())
			})(ctx)
			gone, derr := b.giver.client.Delete(ctx, names)
			return rate, errors.Join(err, derr, gone.Err())
		}
	}
	return row{
		name: name, unit: gigabytes,
		sides: []side{
			{Name: "pieces", Prepare: prepare, Run: run(keyCount, blobCount, size)},
			{Name: "one blob", Prepare: prepare, Run: run(1, 1, total)},
		},
		wants: []want{{of: "pieces", against: "one blob", bound: bound}},
		notes: []string{"Bytes of both directions by the time of both calls, each of all keys; beside one key with one blob of as many bytes."},
	}
}

// callRows measures the cost of a call that moves almost nothing.
func (b *lobby) callRows() []row {
	c := &smallCalls{lobby: b}
	return []row{{
		name: "mget of one key of " + short(smallKey), unit: micros,
		sides: []side{
			{Name: "in-process", Prepare: c.open, Run: c.here},
			{Name: "by a session", Prepare: c.open, Run: c.bySession},
			{Name: "pread of the same file", Prepare: c.open, Run: func(context.Context) (float64, error) { return c.pread(c.file) }},
			{Name: "pread of one in sim0", Prepare: c.open, Run: func(context.Context) (float64, error) { return c.pread(c.other) }},
		},
		notes: []string{
			fmt.Sprintf("Each the mean of %d calls, of an object in host memory. The pread is of keys/KEY in the mount that the session is of,", b.opts.calls),
			"open all the time, past what the kernel keeps: the kernel serves it by itself (passthrough). That of a file in sim0",
			"is a request to the daemon.",
		},
		after: c.close,
	}}
}

// smallCalls has one small key in the store and one in the mount.
type smallCalls struct {
	lobby   *lobby
	opened  bool
	dst     registered
	session *client.Session
	remote  hetero.DeviceBlobList
	file    *os.File
	other   *os.File // the same bytes on a device
}

const smallName = "small"

// open makes the keys once.
func (c *smallCalls) open(ctx context.Context) (err error) {
	if c.opened {
		return nil
	}
	b := c.lobby
	if c.dst, err = b.taker.alloc(ctx, "sim0", 2*smallKey); err != nil {
		return err
	}
	one := []hetero.DeviceBlobList{c.dst.blobs(0, 1, smallKey)}
	if _, err = b.taker.client.MSetD2H(ctx, []string{smallName}, one, hetero.SetOptions{}); err != nil {
		return err
	}
	if c.session, err = client.OpenSession(ctx, b.lab.mnt.Socket()); err != nil {
		return err
	}
	id, all, err := sharedMemory(ctx, c.session, smallKey)
	if err != nil {
		return err
	}
	b.Later(func() error { return unix.Munmap(all) })
	c.remote = hetero.DeviceBlobList{Device: "host", Blobs: []hetero.Blob{{Memory: id, Size: smallKey}}}
	if _, err = c.session.MSetD2H(ctx, []string{smallName}, []hetero.DeviceBlobList{c.remote}, hetero.SetOptions{}); err != nil {
		return err
	}
	content, err := os.ReadFile(b.lab.in("keys", smallName))
	if err != nil {
		return err
	}
	if err = os.WriteFile(b.lab.in("sim0", smallName), content, 0o600); err != nil {
		return err
	}
	if c.file, err = os.OpenFile(b.lab.in("keys", smallName), os.O_RDONLY|unix.O_DIRECT, 0); err != nil {
		return err
	}
	c.other, err = os.OpenFile(b.lab.in("sim0", smallName), os.O_RDONLY|unix.O_DIRECT, 0)
	c.opened = err == nil
	return err
}

func (c *smallCalls) close() error {
	var errs []error
	for _, f := range []*os.File{c.file, c.other} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if c.session != nil {
		errs = append(errs, c.session.Close())
	}
	return errors.Join(errs...)
}

// each returns the mean time of a call.
func (c *smallCalls) each(fn func() error) (float64, error) {
	calls := c.lobby.opts.calls
	begin := time.Now()
	for range calls {
		if err := fn(); err != nil {
			return 0, err
		}
	}
	return time.Since(begin).Seconds() / float64(calls), nil
}

func (c *smallCalls) here(ctx context.Context) (float64, error) {
	name, to := []string{smallName}, []hetero.DeviceBlobList{c.dst.blobs(devices.Offset(smallKey), 1, smallKey)}
	return c.each(func() error {
		_, err := c.lobby.taker.client.DevMGet(ctx, name, to, hetero.GetOptions{})
		return err
	})
}

func (c *smallCalls) bySession(ctx context.Context) (float64, error) {
	name, to := []string{smallName}, []hetero.DeviceBlobList{c.remote}
	return c.each(func() error {
		_, err := c.session.DevMGet(ctx, name, to, hetero.GetOptions{})
		return err
	})
}

func (c *smallCalls) pread(f *os.File) (float64, error) {
	p := make([]byte, 2*smallKey)
	return c.each(func() error {
		_, err := f.ReadAt(p[:smallKey], 0)
		return err
	})
}
