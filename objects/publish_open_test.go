package objects_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// again ends the store and opens the next one over the same records.
func (r *rig) again() {
	r.t.Helper()
	if err := r.store.Close(r.ctx(), objects.CloseOptions{Keep: true}); err != nil {
		r.t.Fatal(err)
	}
	r.reopen()
}

// TestOpenClearsPublish: files that were received except for their name, and memory of
// holders of the previous run, are removed; a file of host memory that was not received
// completely remains.
func TestOpenClearsPublish(t *testing.T) {
	kit.Check(t)
	r, _ := hostAndCard(t, sim.Params{Size: 32 << 20}, transport.Options{})
	const n = 5000
	stays := r.mustOffer("host", "stays", 7, n)
	left := []*objects.File{r.open(stays), r.open(r.mustOffer("host", "taken", 8, n))}
	for i, f := range left {
		if _, err := deliver(r.ctx(), f, 0, n-1+i); err != nil {
			t.Fatal(err)
		}
	}
	a := r.user(1, 1, 1<<20)
	p := a.mustPublish(a.keyed("bound", 0, 100))
	r.again() // with two files open, as a death leaves them
	for _, f := range left {
		r.close(f)
	}
	if err := r.ended(p); !errors.Is(err, objects.ErrWithdrawn) {
		t.Errorf("the publisher: %v", err)
	}
	for key, want := range map[string]bool{"stays": true, "taken": false, "bound": false} {
		if got := r.isPublished(key); got != want {
			t.Errorf("%s is there: %v", key, got)
		}
	}
	f := r.open(stays)
	if p, err := deliver(r.ctx(), f, 0, n); err != nil || kit.DiffAt(p, 7, 0) >= 0 {
		t.Errorf("what was not received: %v", err)
	}
	r.close(f)
	if r.isPublished("stays") {
		t.Error("received, and there still")
	}
	kit.Eventually(t, long, func() bool { return r.used("host") == 0 })
}

// TestOpenPublishWithoutDevice: a publication of a device that is not part of the mount
// does not disturb, and is visible again with its device.
func TestOpenPublishWithoutDevice(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(false))
	ino := r.mustOffer("sim1", "far", 7, 0)
	near := r.mustOffer("sim0", "near", 7, 100)
	devs := r.devs
	if err := r.store.Close(r.ctx(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	r.devs = devs[:1]
	r.reopen()
	if r.isPublished("far") || !r.isPublished("near") {
		t.Error("a publication of a device that is not there can be found")
	}
	u := r.user(0, 1, 1<<20)
	if err := u.Receive(r.ctx(), u.keyed("far", 0, 100)); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("receiving it: %v", err)
	}
	if _, err := u.publish(u.keyed("far", 0, 100)); !errors.Is(err, metadata.ErrExist) {
		t.Errorf("publishing its key: %v", err)
	}
	left, err := r.store.ReadDir(r.ctx(), metadata.PublishIno, 0, 10)
	if err != nil || len(left) != 1 || left[0].Ino != near {
		t.Errorf("publish/ lists %v, %v", left, err)
	}
	u.close()
	if err := r.store.Close(r.ctx(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	r.devs = devs
	r.reopen()
	if got := r.published("far"); got != ino {
		t.Errorf("it is %d now", got)
	}
}

// TestPublishDirectory: publish/ has the mode and owner of the devices' directories, in
// each run.
func TestPublishDirectory(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	if a := r.attr(metadata.PublishIno); a.Mode.Perm() != 0o755 || !a.IsDir() {
		t.Errorf("mode %o", a.Mode)
	}
	if err := r.store.Close(r.ctx(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	var err error
	r.store, err = objects.Open(r.ctx(), objects.Options{
		Meta: r.meta, Engine: r.engine, Devices: r.devs, DirMode: 0o1777, UID: 3, GID: 4,
		Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.attr(metadata.PublishIno); a.Mode.Perm() != 0o1777 || a.UID != 3 || a.GID != 4 {
		t.Errorf("mode %o of %d:%d", a.Mode, a.UID, a.GID)
	}
	if !r.store.Volatile(metadata.PublishIno) || r.store.Volatile(r.root("sim0")) {
		t.Error("names are kept of the wrong directories")
	}
}

// TestWithdrawals removes the name in every state of a publication. A reader that has
// every byte has received it all the same.
func TestWithdrawals(t *testing.T) {
	kit.Check(t)
	ways := map[string]func(r *rig, a *user) error{
		"unlink": func(r *rig, _ *user) error {
			return r.store.Unlink(r.ctx(), metadata.PublishIno, "k")
		},
		"unlink, and another comes": func(r *rig, _ *user) error {
			r.file("sim0", "other", 5, 5)
			if err := r.offer("sim0", "other", "k"); !errors.Is(err, metadata.ErrExist) {
				return fmt.Errorf("published over another: %w", err)
			}
			return errors.Join(r.store.Unlink(r.ctx(), metadata.PublishIno, "k"), r.offer("sim0", "other", "k"))
		},
		"end of the publisher": func(r *rig, a *user) error { return a.Close(r.ctx()) },
	}
	for name, read := range map[string]int{"offered": 0, "partly read": withdrawnSize - 1, "taken": withdrawnSize} {
		for by, way := range ways {
			t.Run(name+" by "+by, func(t *testing.T) {
				c := &withdrawal{rig: newRig(t, small(false)), read: read}
				c.run(way)
				c.check(by == "unlink, and another comes")
			})
		}
	}
}

const withdrawnSize = 1000

// withdrawal is a publication whose name is taken away.
type withdrawal struct {
	*rig
	read  int // by one reader before
	p     *devices.Signal
	f     *objects.File
	heard string
}

func (c *withdrawal) taken() bool { return c.read == withdrawnSize }

func (c *withdrawal) run(way func(r *rig, a *user) error) {
	c.t.Helper()
	a := c.user(0, 1, 1<<20)
	c.p = a.mustPublish(a.keyed("k", 0, withdrawnSize))
	c.f = c.open(c.published("k"))
	if err := c.f.Deliver(c.ctx(), 0, c.read); err != nil {
		c.t.Fatal(err)
	}
	e := c.store.Listen()
	defer e.Close()
	if err := way(c.rig, a); err != nil {
		c.t.Fatal(err)
	}
	if err := c.f.Deliver(c.ctx(), 0, 10); (err == nil) != c.taken() {
		c.t.Errorf("reading it afterwards: %v", err)
	}
	c.close(c.f)
	c.heard = c.rig.heard(e, 1)
}

func (c *withdrawal) check(another bool) {
	c.t.Helper()
	kind, want := "withdrawn", objects.ErrWithdrawn
	if c.taken() {
		kind, want = "consumed", nil
	}
	if err := c.ended(c.p); !errors.Is(err, want) {
		c.t.Errorf("the publisher is told %v, want %v", err, want)
	}
	if want := kind + " k sim0 1000\n"; c.heard != want {
		c.t.Errorf("heard %s, want %s", c.heard, want)
	}
	if there := c.isPublished("k"); there != another {
		c.t.Errorf("there still: %v", there)
	}
}

// TestPublicationExpires: a publication expires like any other file.
func TestPublicationExpires(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	ino := r.file("sim0", "t", 7, 100)
	if err := r.store.SetTTL(r.ctx(), me(), ino, "1", 0); err != nil {
		t.Fatal(err)
	}
	e := r.store.Listen()
	defer e.Close()
	if err := r.offer("sim0", "t", "k"); err != nil {
		t.Fatal(err)
	}
	if got, want := r.heard(e, 2), "published k sim0 100\nwithdrawn k sim0 100\n"; got != want || r.isPublished("k") {
		t.Errorf("heard %s, want %s", got, want)
	}
}
