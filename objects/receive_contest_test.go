package objects_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// contender tries to receive the publication under k, and reports whether it has.
type contender func(t *testing.T, round int) bool

// TestOneWinner has many receivers try to receive one publication concurrently, in all
// ways: exactly one succeeds, and the publisher is notified.
func TestOneWinner(t *testing.T) {
	kit.Check(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const n = 3000
	r := newRig(t, small(false), small(true))
	a := r.user(0, 1, 1<<20)
	for round := range 200 {
		off := uint64(round * 1000)
		var p *devices.Signal
		if round%2 == 0 {
			p = a.mustPublish(a.keyed("k", off, n))
		} else {
			ino := r.file("sim0", "f", 1, n)
			if err := r.offer("sim0", "f", "k"); err != nil {
				t.Fatal(err)
			}
			_, off = ino, 0
		}
		c := &contest{rig: r, off: off, n: n, p: p}
		var all sync.WaitGroup
		for i := range 6 {
			who := c.contenders()[rng.IntN(4)]
			all.Go(func() {
				if who(t, i) {
					c.won.Add(1)
				}
			})
		}
		all.Wait()
		c.check(t, round)
	}
}

// contest is one publication with many receivers.
type contest struct {
	rig *rig
	off uint64
	n   int
	p   *devices.Signal
	won atomic.Int64
	mu  sync.Mutex
	// moved is the place where the winner of a rename has it: a device and a name.
	moved [][2]string
}

func (c *contest) contenders() []contender {
	return []contender{c.byAPI, c.byReading, c.byPieces, c.byRename}
}

// lost checks that an error means that another receiver was first.
func (c *contest) lost(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, metadata.ErrNotExist) && !errors.Is(err, objects.ErrBusy) {
		t.Errorf("came too late: %v", err)
	}
}

func (c *contest) byAPI(t *testing.T, _ int) bool {
	b := c.rig.store.NewHolder(objects.Caller{})
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	dev := c.rig.devs[1]
	mem, err := dev.Alloc(c.rig.ctx(), devices.Size(c.n))
	if err != nil {
		t.Error(err)
		return false
	}
	defer func() {
		if failure := mem.Release(); failure != nil {
			t.Error(failure)
		}
	}()
	reg, err := b.Adopt(c.rig.ctx(), dev.Info().Name, mem)
	if err != nil {
		t.Error(err)
		return false
	}
	if err = b.Receive(c.rig.ctx(), objects.Keyed{Key: "k", Blobs: []objects.Blob{{Region: reg, Len: uint64(c.n)}}}); err != nil {
		c.lost(t, err)
		return false
	}
	p := make([]byte, c.n)
	if err := dev.CopyOut(c.rig.ctx(), p, mem.All()); err != nil || kit.DiffAt(p, 1, int64(c.off)) >= 0 {
		t.Errorf("received other bytes: %v", err)
	}
	return true
}

func (c *contest) byReading(t *testing.T, who int) bool { return c.read(t, c.n, who) }
func (c *contest) byPieces(t *testing.T, who int) bool  { return c.read(t, 700+who, who) }

func (c *contest) read(t *testing.T, step, who int) bool {
	ctx := c.rig.ctx()
	a, err := c.rig.store.Lookup(ctx, metadata.PublishIno, "k")
	var f *objects.File
	if err == nil {
		f, err = c.rig.store.OpenFile(ctx, a.Ino)
	}
	if err != nil {
		c.lost(t, err)
		return false
	}
	defer func() {
		if err := f.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if !f.Published() { // somebody has renamed it meanwhile
		return false
	}
	for off := 0; off < c.n; off += step {
		p, err := deliver(ctx, f, uint64(off), step)
		if err != nil {
			c.lost(t, err)
			return false
		}
		if at := kit.DiffAt(p, 1, int64(c.off)+int64(off)); at >= 0 {
			t.Errorf("reader %d got other bytes from %d on", who, off+at)
		}
	}
	return true
}

func (c *contest) byRename(t *testing.T, who int) bool {
	name := fmt.Sprint("won", who)
	err := c.rig.fetch("k", fmt.Sprint("sim", who%2), name)
	if err != nil {
		c.lost(t, err)
		return false
	}
	c.mu.Lock()
	c.moved = append(c.moved, [2]string{fmt.Sprint("sim", who%2), name})
	c.mu.Unlock()
	return true
}

// check checks the state after all have tried. All may have failed, if renames met open
// files.
func (c *contest) check(t *testing.T, round int) {
	t.Helper()
	won := c.won.Load()
	if won > 1 || won == 0 && !c.rig.isPublished("k") || won == 1 && c.rig.isPublished("k") {
		t.Fatalf("round %d: %d have received it, there still: %v", round, won, c.rig.isPublished("k"))
	}
	if won == 0 && !c.byAPI(t, 0) {
		t.Fatal("what nobody has received can't be")
	}
	if c.p != nil {
		if err := c.rig.ended(c.p); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range c.moved {
		dir := c.rig.root(at[0])
		a, err := c.rig.store.Lookup(c.rig.ctx(), dir, at[1])
		if err != nil {
			t.Fatal(err)
		}
		f := c.rig.open(a.Ino)
		if at := kit.DiffAt(c.rig.read(f, 0, c.n+1), 1, int64(c.off)); at >= 0 || f.Size() != uint64(c.n) {
			t.Errorf("renamed: other bytes from %d on", at)
		}
		c.rig.close(f)
		if err := c.rig.store.Unlink(c.rig.ctx(), dir, at[1]); err != nil {
			t.Fatal(err)
		}
	}
}
