package objects_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	metafaulty "github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// way is one way of publishing 3000 bytes of seed 1 under k, or of receiving
// them. An error means that nothing has happened.
type way struct {
	name string
	run  func(c *handOver) error
}

// handOver is one publication and its receivers, with operations that fail.
type handOver struct {
	*rig
	a, b *user
	p    *devices.Signal
	// arm and disarm let one operation fail between them.
	arm    func()
	disarm func()
	// took reports that a reader has received every byte.
	took  bool
	roots [2]objects.Ino
}

const handed = 3000

func publishing() []way {
	return []way{
		{"published", func(c *handOver) (err error) {
			c.p, err = c.a.publish(c.a.keyed("k", 0, 1000, 1000, 2000))
			return err
		}},
		{"renamed", func(c *handOver) error {
			return c.store.Rename(c.ctx(), metadata.Rename{From: c.roots[0], Name: "f", To: metadata.PublishIno, NewName: "k"})
		}},
	}
}

func receiving() []way {
	return []way{
		{"received", func(c *handOver) error {
			return c.b.Receive(c.ctx(), c.b.keyed("k", 0, 1000, 1000, 2000))
		}},
		{"renamed here", func(c *handOver) error { return c.renameTo(0) }},
		{"renamed there", func(c *handOver) error { return c.renameTo(1) }},
		{"read", (*handOver).read},
	}
}

func (c *handOver) renameTo(device int) error {
	return c.store.Rename(c.ctx(), metadata.Rename{From: metadata.PublishIno, Name: "k", To: c.roots[device], NewName: "t"})
}

// read receives by reading, in two pieces.
func (c *handOver) read() error {
	a, err := c.store.Lookup(c.ctx(), metadata.PublishIno, "k")
	if err != nil {
		return err
	}
	f, err := c.store.OpenFile(c.ctx(), a.Ino)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close(c.ctx()) }()
	for _, off := range []int{0, handed / 2} {
		p, err := deliver(c.ctx(), f, uint64(off), handed/2)
		if err != nil {
			return err
		}
		if at := kit.DiffAt(p, 1, int64(off)); at >= 0 {
			c.t.Errorf("read other bytes from %d on", off+at)
		}
	}
	c.took = true
	return nil
}

// play publishes and receives, with one operation of either failing, and then again
// without a failure.
func (c *handOver) play(publish, receive way, failReceiving bool) {
	c.t.Helper()
	if !failReceiving {
		c.arm()
	}
	err := publish.run(c)
	c.disarm()
	if err != nil {
		if c.isPublished("k") {
			c.t.Fatalf("%s: %v, and it is there", publish.name, err)
		}
		if err = publish.run(c); err != nil {
			c.t.Fatalf("%s again: %v", publish.name, err)
		}
	}
	if failReceiving {
		c.arm()
	}
	err = receive.run(c)
	c.disarm()
	if err != nil {
		if !c.isPublished("k") {
			c.t.Fatalf("%s: %v, and it is not there any more", receive.name, err)
		}
		if c.p != nil {
			c.pending(c.p)
		}
		c.check("sim0", "sim1")
		if err = receive.run(c); err != nil {
			c.t.Fatalf("%s again: %v", receive.name, err)
		}
	}
	c.outcome(receive)
}

// outcome checks the state after the publication was received.
func (c *handOver) outcome(receive way) {
	c.t.Helper()
	switch {
	case receive.name == "received":
		if at := kit.DiffAt(c.b.bytes()[:handed], 1, 0); at >= 0 {
			c.t.Errorf("received other bytes from %d on", at)
		}
	case c.took && c.isPublished("k"):
		// Only the removal has failed: it can't be received again, and the next run removes
		// it.
		if _, err := c.store.OpenFile(c.ctx(), c.published("k")); !errors.Is(err, metadata.ErrNotExist) {
			c.t.Errorf("opening what was received: %v", err)
		}
		if err := c.b.Receive(c.ctx(), c.b.keyed("k", 0, 1000, 1000, 2000)); !errors.Is(err, metadata.ErrNotExist) {
			c.t.Errorf("receiving what was received: %v", err)
		}
		if err := c.store.Unlink(c.ctx(), metadata.PublishIno, "k"); err != nil {
			c.t.Errorf("removing what was received: %v", err)
		}
	case !c.took:
		c.check(map[string]string{"renamed here": "sim0", "renamed there": "sim1"}[receive.name])
	}
	if c.isPublished("k") {
		c.t.Error("received, and there still")
	}
	if c.p != nil {
		if err := c.ended(c.p); err != nil {
			c.t.Errorf("received, and the publisher is told: %v", err)
		}
	}
}

// check checks the content of renamed files at their new places.
func (c *handOver) check(devices ...string) {
	c.t.Helper()
	for _, device := range devices {
		a, err := c.store.Lookup(c.ctx(), c.root(device), "t")
		if errors.Is(err, metadata.ErrNotExist) && len(devices) > 1 {
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		f := c.open(a.Ino)
		if at := kit.DiffAt(c.read0(f), 1, 0); at >= 0 || f.Size() != handed {
			c.t.Errorf("%s/t has %d bytes, other ones from %d on", device, f.Size(), at)
		}
		c.close(f)
	}
}

func (c *handOver) read0(f *objects.File) []byte { return c.rig.read(f, 0, handed+1) }

// eachHandOver runs every way of publishing with every way of receiving, with one side
// and then the other failing. run fails the n-th operation, and reports whether there
// was one.
func eachHandOver(t *testing.T, run func(t *testing.T, n int, play func(*handOver)) (hit bool)) {
	kit.Check(t)
	for _, publish := range publishing() {
		for _, receive := range receiving() {
			for _, failReceiving := range []bool{false, true} {
				name := fmt.Sprintf("%s and %s, receiving fails %v", publish.name, receive.name, failReceiving)
				t.Run(name, func(t *testing.T) {
					n := 0
					for run(t, n, func(c *handOver) { c.play(publish, receive, failReceiving) }) {
						if n++; n > most {
							t.Fatal("still failing operations")
						}
					}
					t.Logf("%d operations", n)
				})
			}
		}
	}
}

// most bounds the number of operations that are made to fail.
const most = 400

// TestHandOverDeviceErrors fails the n-th operation of the devices, for every n: the
// publication is intact afterwards, and is received completely.
func TestHandOverDeviceErrors(t *testing.T) {
	eachHandOver(t, func(t *testing.T, n int, play func(*handOver)) bool {
		failing := &countdown{log: func(devfaulty.Op) {}}
		c := newHandOver(t, memkv.New(), failing.hook)
		c.arm, c.disarm = func() { failing.left.Store(int64(n + 1)) }, func() { failing.left.Store(0) }
		play(c)
		c.finish()
		return failing.hit.Load()
	})
}

// TestHandOverMetadataErrors is the same for the operations of the key-value
// seam.
func TestHandOverMetadataErrors(t *testing.T) {
	eachHandOver(t, func(t *testing.T, n int, play func(*handOver)) bool {
		failing, hit := &metafaulty.Counter{}, false
		c := newHandOver(t, metafaulty.Wrap(memkv.New(), failing.Inject), func(devfaulty.Op) error { return nil })
		c.arm, c.disarm = func() { failing.Arm(n) }, func() { hit = failing.Disarm() || hit }
		play(c)
		c.finish()
		return hit
	})
}

func newHandOver(t *testing.T, kv metadata.KV, hook devfaulty.Hook) *handOver {
	t.Helper()
	c := &handOver{rig: &rig{t: t, devs: []devices.Device{
		devfaulty.Wrap(sim.New(0, small(false)), hook), devfaulty.Wrap(sim.New(1, small(false)), hook),
	}}}
	var err error
	if c.meta, err = metadata.Open(c.ctx(), kv, metadata.Options{}); err != nil {
		t.Fatal(err)
	}
	if c.engine, err = transport.New(transport.Options{}); err != nil {
		t.Fatal(err)
	}
	c.reopen()
	c.a, c.b = c.newUser(0, 1, handed), c.newUser(1, 2, handed)
	c.roots = [2]objects.Ino{c.root("sim0"), c.root("sim1")}
	ino := c.file("sim0", "f", 1, handed)
	if err := c.store.SetXattr(c.ctx(), ino, "user.hmc.blobs", []byte("1000,2000"), 0); err != nil {
		t.Fatal(err)
	}
	return c
}

// finish ends the rig: nothing is left behind.
func (c *handOver) finish() {
	c.t.Helper()
	c.a.leave()
	c.b.leave()
	c.stop()
}

// lateKV reports an error for a commit that has succeeded.
type lateKV struct {
	metadata.KV
	on bool
}

func (k *lateKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	err := k.KV.Update(ctx, fn)
	if err == nil && k.on {
		k.on = false
		err = fmt.Errorf("late: %w", errInjected)
	}
	return err
}

// TestTakeFailsLate: a reader whose receipt is in the records has the file, even though
// the commit reported an error.
func TestTakeFailsLate(t *testing.T) {
	kit.Check(t)
	kv := &lateKV{KV: memkv.New()}
	c := newHandOver(t, kv, func(devfaulty.Op) error { return nil })
	if err := c.offer("sim0", "f", "k"); err != nil {
		t.Fatal(err)
	}
	f := c.open(c.published("k"))
	kv.on = true
	if _, err := deliver(c.ctx(), f, 0, handed); err != nil {
		t.Fatal(err)
	}
	if kv.on {
		t.Fatal("nothing has failed")
	}
	c.close(f)
	if c.isPublished("k") {
		t.Fatal("received, and there still")
	}
	c.finish()
}

// TestWithdrawalFails: the publisher is notified of the end, and its memory can't be
// read, also if the name can't be removed; the next run removes it.
func TestWithdrawalFails(t *testing.T) {
	kit.Check(t)
	for n := 0; ; n++ {
		failing := &metafaulty.Counter{}
		c := newHandOver(t, metafaulty.Wrap(memkv.New(), failing.Inject), func(devfaulty.Op) error { return nil })
		if err := publishing()[0].run(c); err != nil {
			t.Fatal(err)
		}
		f := c.open(c.published("k"))
		failing.Arm(n)
		c.a.close()
		hit := failing.Disarm()
		if err := c.ended(c.p); !errors.Is(err, objects.ErrWithdrawn) {
			t.Errorf("n=%d: the publisher is told %v", n, err)
		}
		if err := f.Deliver(c.ctx(), 0, handed); !errors.Is(err, objects.ErrLost) {
			t.Errorf("n=%d: a reader is told %v", n, err)
		}
		c.close(f)
		c.b.close()
		c.again()
		if c.isPublished("k") {
			t.Errorf("n=%d: the next run has it still", n)
		}
		c.finish()
		if !hit {
			return
		}
		if n > most {
			t.Fatal("still failing operations")
		}
	}
}
