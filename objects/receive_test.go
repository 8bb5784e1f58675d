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
	devfaulty "github.com/hmcfs/hmcfs/devices/faulty"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// TestReadReceives: who is given the last byte that he had not read has
// received the file, in any order, and it goes when he closes it.
func TestReadReceives(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	const n = 1000
	for name, reads := range map[string][][2]int{
		"at once":              {{0, n}},
		"more than there is":   {{0, n + 50}},
		"backwards":            {{500, 500}, {0, 500}},
		"with overlaps":        {{0, 600}, {300, 600}, {200, 100}, {850, 200}},
		"the middle last":      {{0, 10}, {990, 10}, {10, 980}},
		"the same and another": {{0, 999}, {0, 999}, {998, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			ino := r.mustOffer("sim0", "k", 7, n)
			e := r.store.Listen()
			defer e.Close()
			f, loser := r.open(ino), r.open(ino)
			for i, at := range reads {
				if p, err := deliver(r.ctx(), loser, 0, 1); err != nil || kit.DiffAt(p, 7, 0) >= 0 {
					t.Fatalf("before read %d: %v", i, err)
				}
				p, err := deliver(r.ctx(), f, uint64(at[0]), at[1])
				if err != nil || kit.DiffAt(p, 7, int64(at[0])) >= 0 {
					t.Fatalf("read %d: %d bytes, %v", i, len(p), err)
				}
			}
			if _, err := r.store.OpenFile(r.ctx(), ino); !errors.Is(err, metadata.ErrNotExist) {
				t.Errorf("opening what is received: %v", err)
			}
			for _, at := range [][2]int{{0, 1}, {0, n}, {n, 1}} {
				if _, err := deliver(r.ctx(), loser, uint64(at[0]), at[1]); !errors.Is(err, metadata.ErrNotExist) {
					t.Errorf("another one reads %v: %v", at, err)
				}
			}
			if p, err := deliver(r.ctx(), f, 1, n); err != nil || len(p) != n-1 {
				t.Errorf("reading one's own again: %v", err)
			}
			if !r.isPublished("k") {
				t.Error("gone before it is closed")
			}
			r.close(loser)
			r.close(f)
			if r.isPublished("k") {
				t.Error("there still")
			}
			if got := r.heard(e, 1); got != "consumed k sim0 1000\n" {
				t.Errorf("heard %s", got)
			}
		})
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use", used)
	}
}

// TestPartConsumesNothing: whoever has not got every byte leaves the file for
// others, also one who was given all but one.
func TestPartConsumesNothing(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	const n = 1000
	ino := r.mustOffer("sim0", "k", 7, n)
	for _, at := range [][2]int{{0, n - 1}, {1, n}, {0, 0}, {n, 5}, {0, 500}} {
		f := r.open(ino)
		if !f.Published() {
			t.Fatal("not published")
		}
		if _, err := deliver(r.ctx(), f, uint64(at[0]), at[1]); err != nil {
			t.Fatal(err)
		}
		r.close(f)
	}
	f := r.open(ino)
	defer r.close(f)
	if at := kit.DiffAt(r.read(f, 0, n), 7, 0); at >= 0 || !r.isPublished("k") {
		t.Fatalf("other bytes from %d on", at)
	}
	if _, err := deliver(r.ctx(), f, 500, 500); err != nil { // what others have read does not count
		t.Fatal(err)
	}
}

// TestEmptyFile is received by opening and closing it, once.
func TestEmptyFile(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(false))
	for _, by := range []string{"reading", "rename", "rename to another device"} {
		ino := r.mustOffer("sim0", "k", 7, 0)
		f, g := r.open(ino), r.open(ino)
		if _, err := deliver(r.ctx(), f, 0, 10); err != nil {
			t.Fatal(err)
		}
		switch by {
		case "reading":
			r.close(f)
			if _, err := deliver(r.ctx(), g, 0, 10); !errors.Is(err, metadata.ErrNotExist) {
				t.Fatalf("%s: the other: %v", by, err)
			}
		case "rename":
			if err := r.fetch("k", "sim0", "there"); err != nil {
				t.Fatal(err)
			}
			r.close(f)
			if _, err := r.store.Lookup(r.ctx(), r.root("sim0"), "there"); err != nil {
				t.Fatalf("what was renamed: %v", err)
			}
		default:
			r.close(f)
		}
		r.close(g)
		if r.isPublished("k") {
			t.Fatalf("%s: there still", by)
		}
	}
}

// TestManyStretches: what a reader is given beside 4096 stretches does not
// count, and what closes their gaps does.
func TestManyStretches(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(true))
	const most, n = 4096, 2*4096 + 2
	ino := r.mustOffer("sim0", "k", 7, n)
	f := r.open(ino)
	for i := range uint64(most + 1) {
		if err := f.Deliver(r.ctx(), 2*i, 1); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(most + 1) {
		if err := f.Deliver(r.ctx(), 2*i+1, 1); err != nil {
			t.Fatal(err)
		}
	}
	r.close(f)
	if !r.isPublished("k") {
		t.Fatal("received with a stretch that does not count")
	}
	f = r.open(ino)
	for _, i := range rand.Perm(n) {
		if i%2 == 0 && i < 2*most || i%2 == 1 {
			continue
		}
		if err := f.Deliver(r.ctx(), uint64(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if err := f.Deliver(r.ctx(), uint64(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	r.close(f)
	if r.isPublished("k") {
		t.Fatal("not received")
	}
}

// TestRandomReaders has several threads of one handle read a file in random
// pieces, while another handle reads too: one of them gets all of it.
func TestRandomReaders(t *testing.T) {
	kit.Check(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := newRig(t, small(false))
	const n = 100_000
	for round := range uint64(20) {
		ino := r.mustOffer("sim0", "k", seed+round, n)
		files := [2]*objects.File{r.open(ino), r.open(ino)}
		var all sync.WaitGroup
		var won atomic.Int64
		for i := range uint64(6) {
			f := files[i%2]
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, round*6+i))
				for range 300 {
					off, k := max(0, rng.IntN(n)-10_000), 1+rng.IntN(20_000)
					p, err := deliver(r.ctx(), f, uint64(off), k)
					if errors.Is(err, metadata.ErrNotExist) {
						won.Add(1)
						return
					}
					if err != nil || kit.DiffAt(p, seed+round, int64(off)) >= 0 {
						t.Errorf("%d bytes at %d: %v", len(p), off, err)
						return
					}
				}
			})
		}
		all.Wait()
		if won.Load() != 3 {
			t.Errorf("%d threads were told that they came too late", won.Load())
		}
		r.close(files[0])
		r.close(files[1])
		if r.isPublished("k") {
			t.Fatal("there still")
		}
	}
}

// contender is one who tries to receive what is published under k, and says
// whether he has.
type contender func(t *testing.T, round int) bool

// TestOneWinner has many receive one publication in all ways at once: exactly
// one does, and the publisher hears of it.
func TestOneWinner(t *testing.T) {
	kit.Check(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const n = 3000
	r := newRig(t, small(false), small(true))
	a := r.user(0, 1, 1<<20)
	rounds := 200
	if testing.Short() {
		rounds = 60
	}
	for round := range rounds {
		off := uint64(round * 1000)
		var p *objects.Publication
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

// contest is one publication that many want.
type contest struct {
	rig *rig
	off uint64
	n   int
	p   *objects.Publication
	won atomic.Int64
	// moved is the name that the winner of a rename has given it.
	moved sync.Map
}

func (c *contest) contenders() []contender {
	return []contender{c.byAPI, c.byReading, c.byPieces, c.byRename}
}

// lost says whether an error means that somebody else was first.
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
		if err := mem.Release(); err != nil {
			t.Error(err)
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
	c.moved.Store(fmt.Sprint("sim", who%2), name)
	return true
}

// check looks at what is left when all have tried. All may have failed, where
// renames met open files.
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
	c.moved.Range(func(device, name any) bool {
		dir := c.rig.root(device.(string))
		a, err := c.rig.store.Lookup(c.rig.ctx(), dir, name.(string))
		if err != nil {
			t.Fatal(err)
		}
		f := c.rig.open(a.Ino)
		if at := kit.DiffAt(c.rig.read(f, 0, c.n+1), 1, int64(c.off)); at >= 0 || f.Size() != uint64(c.n) {
			t.Errorf("renamed: other bytes from %d on", at)
		}
		c.rig.close(f)
		if err := c.rig.store.Unlink(c.rig.ctx(), dir, name.(string)); err != nil {
			t.Fatal(err)
		}
		return true
	})
}

// held is a rig whose device stops in copies out of it when it is told to.
type held struct {
	*rig
	on      atomic.Bool
	reached chan struct{}
	goOn    chan error
}

// holding holds up a device's copies out of its memory.
func holding(t *testing.T) *held {
	t.Helper()
	h := &held{reached: make(chan struct{}, 64), goOn: make(chan error)}
	hook := func(op devfaulty.Op) error {
		if op.Kind == devfaulty.CopyIn || op.Kind == devfaulty.Alloc || op.Kind == devfaulty.Free || op.Kind == devfaulty.Usage || !h.on.Load() {
			return nil
		}
		h.reached <- struct{}{}
		return <-h.goOn
	}
	h.rig = moving(t, transport.Options{}, devfaulty.Wrap(sim.New(0, small(false)), hook), sim.New(1, small(false)))
	return h
}

// TestPublisherEndsInTheMiddle: a receiver whose publisher ends while the bytes
// are copied has an error, at once, and the publication is withdrawn.
func TestPublisherEndsInTheMiddle(t *testing.T) {
	kit.Check(t)
	h := holding(t)
	a, b := h.user(0, 1, 1<<20), h.user(1, 2, 1<<20)
	p := a.mustPublish(a.keyed("k", 0, 1000, 5000, 1000))
	h.on.Store(true)
	got := make(chan error, 1)
	go func() { got <- b.Receive(h.ctx(), b.keyed("k", 0, 1000, 5000, 1000)) }()
	<-h.reached
	ended := make(chan error, 1)
	go func() { ended <- a.Close(h.ctx()) }()
	if err := h.ended(p); !errors.Is(err, objects.ErrWithdrawn) || h.isPublished("k") {
		t.Errorf("the publisher has ended: %v", err)
	}
	h.on.Store(false)
	close(h.goOn)
	if err := <-got; !errors.Is(err, objects.ErrLost) {
		t.Errorf("received from one who has ended: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWithdrawnInTheMiddle: removing the name while it is received leaves the
// receiver an error, and so does his own end leave the publication.
func TestWithdrawnInTheMiddle(t *testing.T) {
	kit.Check(t)
	for name, c := range map[string]struct {
		meanwhile func(h *held, cancel func(), b *user) error
		want      error
		there     bool
	}{
		"the name is removed": {func(h *held, _ func(), _ *user) error {
			return h.store.Unlink(h.ctx(), metadata.PublishIno, "k")
		}, metadata.ErrNotExist, false},
		"the receiver is cancelled": {func(_ *held, cancel func(), _ *user) error {
			cancel()
			return nil
		}, context.Canceled, true},
		"the copy fails": {nil, errInjected, true},
		"nothing":        {func(*held, func(), *user) error { return nil }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := holding(t)
			a, b, d := h.user(0, 1, 1<<20), h.user(1, 2, 1<<20), h.user(1, 3, 1<<20)
			p := a.mustPublish(a.keyed("k", 0, 1000))
			h.on.Store(true)
			ctx, cancel := context.WithCancel(h.ctx())
			defer cancel()
			got, second := make(chan error, 1), make(chan error, 1)
			go func() { got <- b.Receive(ctx, b.keyed("k", 0, 1000)) }()
			<-h.reached
			h.on.Store(false)
			go func() { second <- d.Receive(h.ctx(), d.keyed("k", 0, 1000)) }()
			if c.meanwhile == nil {
				h.goOn <- errInjected
			} else {
				if err := c.meanwhile(h, cancel, b); err != nil {
					t.Fatal(err)
				}
				h.goOn <- nil
			}
			if err := <-got; !errors.Is(err, c.want) {
				t.Errorf("the first: %v, want %v", err, c.want)
			}
			if err := <-second; c.there == (err != nil) || err != nil && !errors.Is(err, metadata.ErrNotExist) {
				t.Errorf("the second: %v", err)
			}
			if err := h.ended(p); (err == nil) != (c.there || c.want == nil) || h.isPublished("k") {
				t.Errorf("the publisher: %v", err)
			}
			if at := kit.DiffAt(d.bytes()[:1000], 1, 0); (at < 0) != c.there {
				t.Errorf("the second has other bytes from %d on", at)
			}
		})
	}
}

// TestReceiverEndsInTheMiddle: who ends before he has consumed it leaves it.
func TestReceiverEndsInTheMiddle(t *testing.T) {
	kit.Check(t)
	h := holding(t)
	a, b := h.user(0, 1, 1<<20), h.user(1, 2, 1<<20)
	p := a.mustPublish(a.keyed("k", 0, 1000))
	h.on.Store(true)
	got := make(chan error, 1)
	go func() { got <- b.Receive(h.ctx(), b.keyed("k", 0, 1000)) }()
	<-h.reached
	ended := make(chan error, 1)
	go func() { ended <- b.Close(h.ctx()) }()
	kit.Eventually(t, long, func() bool {
		_, err := b.PublicationInfo(h.ctx(), "k")
		return errors.Is(err, objects.ErrClosed)
	})
	h.on.Store(false)
	close(h.goOn)
	if err := <-got; err == nil {
		t.Error("received by one who has ended")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h.pending(p)
	if err := h.fetch("k", "sim1", "t"); err != nil {
		t.Fatal(err)
	}
	if err := h.ended(p); err != nil {
		t.Fatal(err)
	}
}
