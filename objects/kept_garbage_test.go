package objects_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestGarbage changes words of the state that is kept. Whatever they say, the next store
// starts, no page has two owners, and the device is usable.
func TestGarbage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	k := newKeptRig(t, small(false))
	continued := 0
	for round := range 40 {
		var files []*objects.File
		for i := range 4 {
			f := k.create("sim0", fmt.Sprint(round, "-", i))
			k.write(f, rng.Uint64N(50_000), kit.Bytes(1, 0, 1+rng.IntN(100_000)))
			files = append(files, f)
		}
		k.close(files[0])
		k.killAnd(func() {
			names := k.kept("mem/sim0/")
			for range 1 + rng.IntN(8) {
				k.damage(names[rng.IntN(len(names))], func(w memfd.Words) { spoil(rng, w) })
			}
		})
		if k.store.Recovery().Survived > 0 {
			continued++
		}
		k.checkLeases()
		k.store.ReleaseUnclaimed(k.ctx())
		entries, err := k.store.ReadDir(k.ctx(), k.root("sim0"), 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name, ".") {
				continue
			}
			if f, err := k.store.OpenFile(k.ctx(), e.Ino); err == nil {
				_, _ = f.ReadAt(k.ctx(), make([]byte, 100_000), 0) // lost, or something
				k.close(f)
			}
			if err := k.store.Unlink(k.ctx(), k.root("sim0"), e.Name); err != nil {
				t.Error(err)
			}
		}
		k.kill() // what a lost object has left is free at the next start at the latest
		k.store.ReleaseUnclaimed(k.ctx())
		if used := k.used("sim0"); used != 0 || t.Failed() {
			t.Fatalf("round %d: %v in use without a file", round, used)
		}
	}
	if continued < 5 {
		t.Errorf("only %d of 40 stores have continued", continued)
	}
}

// spoil changes one of the words that are in use: those of labels are behind the memory of a
// slab, those of objects at the beginning of the table, after the version: that of another hmcfs is refused.
func spoil(rng *rand.Rand, w memfd.Words) {
	at := 1 + rng.IntN(16*6-1)
	if slab := 1 << 17; w.Len() >= slab && w.Len() <= slab+1024 { // 1 MiB with its labels
		at = slab + rng.IntN(200)
	}
	old := w.At(at).Load()
	w.At(at).Store([]uint64{0, old + 1, old ^ 1<<rng.IntN(64), rng.Uint64(), ^uint64(0), old << 1}[rng.IntN(6)])
}
