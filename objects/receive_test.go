package objects_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestReadReceives: a reader that gets the last byte that it had not read has received
// the file, in any order of reads, and the file is removed when the reader closes it.
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
		t.Run(name, func(t *testing.T) { readReceives(t, r, reads) })
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use", used)
	}
}

func readReceives(t *testing.T, r *rig, reads [][2]int) {
	t.Helper()
	const n = 1000
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
}

// TestPartConsumesNothing: a reader that has not read every byte, even if only one is
// missing, leaves the file for others.
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

// TestEmptyFile: an empty file is received once, by the first reader that finds its
// end, or by a rename. Opening and closing it does not receive it.
func TestEmptyFile(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(false))
	for _, by := range []string{"reading", "rename", "rename to another device"} {
		r.receiveEmpty(by)
	}
}

// receiveEmpty receives an empty file in one way.
func (r *rig) receiveEmpty(by string) {
	r.t.Helper()
	ino := r.mustOffer("sim0", "k", 7, 0)
	r.close(r.open(ino))
	if !r.isPublished("k") {
		r.t.Fatalf("%s: received by nobody", by)
	}
	g := r.open(ino)
	switch by {
	case "reading":
		f := r.open(ino)
		if _, err := deliver(r.ctx(), f, 0, 10); err != nil {
			r.t.Fatal(err)
		}
		if err := r.fetch("k", "sim0", "there"); !errors.Is(err, metadata.ErrNotExist) {
			r.t.Errorf("%s: renamed: %v", by, err)
		}
		r.wantNone(g, by)
		r.close(f)
	case "rename":
		if err := r.fetch("k", "sim0", "there"); err != nil {
			r.t.Fatal(err)
		}
	default:
		r.close(g)
		g = nil
		if err := r.fetch("k", "sim1", "there"); err != nil {
			r.t.Fatal(err)
		}
	}
	if g != nil {
		r.wantNone(g, by)
		r.close(g)
	}
	if r.isPublished("k") {
		r.t.Fatalf("%s: there still", by)
	}
	if by == "rename" {
		if err := r.store.Unlink(r.ctx(), r.root("sim0"), "there"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// wantNone checks that a reader can't receive an empty file that another one has
// received.
func (r *rig) wantNone(f *objects.File, by string) {
	r.t.Helper()
	if _, err := deliver(r.ctx(), f, 0, 10); !errors.Is(err, metadata.ErrNotExist) {
		r.t.Errorf("%s: the other: %v", by, err)
	}
}

// TestManyStretches: reads beyond 4096 separate ranges do not count, except those that
// close gaps.
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

// TestRandomReaders has several goroutines read a file in random pieces through one
// handle, while another handle reads too: one of the handles gets all of it.
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
