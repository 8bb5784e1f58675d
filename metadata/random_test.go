package metadata_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// randomRun drives a store and the model with the same random operations.
type randomRun struct {
	t     *testing.T
	r     *rand.Rand
	s     *metadata.Store
	m     *model
	weak  bool // names collide
	clock int64
	inos  []metadata.Ino // all numbers ever assigned, including removed ones
	log   []string
}

// now returns a clock that the run advances manually.
func (x *randomRun) now() time.Time { return time.Unix(x.clock, x.clock%1e9) }

func (x *randomRun) tick() {
	x.clock += 1 + x.r.Int64N(5)
	x.m.now = metadata.TimespecOf(x.now())
}

func (x *randomRun) open(kv metadata.KV) {
	x.t.Helper()
	s, err := metadata.Open(x.t.Context(), kv, metadata.Options{Now: x.now})
	if err != nil {
		x.t.Fatalf("Open: %v", err)
	}
	if x.weak {
		metadata.CollideNames(s, weakHash)
	}
	x.s = s
}

// weakHash has only three values.
func weakHash(name string) uint64 {
	sum := uint64(1)
	for i := range len(name) {
		sum += uint64(name[i])
	}
	return sum % 3 << 60
}

func (x *randomRun) ino() metadata.Ino {
	live := slices.Sorted(maps.Keys(x.m.nodes))
	if x.r.IntN(12) == 0 {
		return x.inos[x.r.IntN(len(x.inos))]
	}
	return live[x.r.IntN(len(live))]
}

func (x *randomRun) dir() metadata.Ino {
	if x.r.IntN(10) == 0 {
		return x.ino()
	}
	var dirs []metadata.Ino
	for _, ino := range slices.Sorted(maps.Keys(x.m.nodes)) {
		if x.m.nodes[ino].children != nil && (ino != metadata.RootIno || x.r.IntN(4) == 0) {
			dirs = append(dirs, ino)
		}
	}
	return dirs[x.r.IntN(len(dirs))]
}

// name returns a random name, preferably one that the directory has.
func (x *randomRun) name(dir metadata.Ino) string {
	if n := x.m.nodes[dir]; n != nil && len(n.children) > 0 && x.r.IntN(2) == 0 {
		names := slices.Sorted(maps.Keys(n.children))
		return names[x.r.IntN(len(names))]
	}
	return fmt.Sprintf("n%d", x.r.IntN(9))
}

func (x *randomRun) mappings() []metadata.Mapping {
	var out []metadata.Mapping
	for off, n := uint64(0), x.r.IntN(6); n > 0; n-- {
		off += x.r.Uint64N(3) * 100
		out = append(out, metadata.Mapping{
			FileOff: off, Len: 100, Written: x.r.Uint64N(101), Device: "sim0",
			Epoch: metadata.Epoch(x.r.Uint64N(3)), Allocation: metadata.AllocationID(x.r.Uint64N(3)),
			Off: x.r.Uint64N(2) * 512, Pinned: x.r.IntN(2) == 0,
		})
		off += 100
	}
	x.r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// agree compares the errors of store and model.
func (x *randomRun) agree(what string, got, want error) {
	x.t.Helper()
	x.log = append(x.log, fmt.Sprintf("%s: %v", what, got))
	if !errors.Is(got, want) {
		for _, line := range x.log[max(0, len(x.log)-40):] {
			x.t.Log(line)
		}
		x.t.Fatalf("%s = %v, the model says %v", what, got, want)
	}
}

func (x *randomRun) step() {
	x.tick()
	steps := []struct {
		weight int
		run    func()
	}{
		{30, x.create},
		{10, x.link},
		{14, x.unlink},
		{5, x.rmdir},
		{30, x.rename},
		{8, x.moveDevice},
		{8, x.update},
		{8, x.setXattr},
		{4, x.removeXattr},
		{8, x.bindKey},
		{10, x.saveContent},
		{10, x.publish},
		{4, x.take},
		{8, x.expire},
		{10, x.put},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	at := x.r.IntN(total)
	for _, s := range steps {
		if at -= s.weight; at < 0 {
			s.run()
			return
		}
	}
}

// randomTest runs batches of operations; reopen, if given, replaces the KV between two
// batches.
func randomTest(t *testing.T, weak bool, kv metadata.KV, reopen func(s *metadata.Store, crash bool) metadata.KV) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	x := &randomRun{t: t, r: rand.New(rand.NewPCG(seed, 2)), m: newModel(), weak: weak, clock: 1e9}
	x.tick()
	x.m.begin(x.m.now)
	x.open(kv)
	for i := range 2 {
		name := metadata.DeviceName(fmt.Sprintf("sim%d", i))
		in, err := x.s.EnsureDevice(t.Context(), name, 0o755, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		x.m.addDevice(in)
		x.inos = append(x.inos, in.Ino)
	}
	batches := 12
	if testing.Short() {
		batches = 4
	}
	for batch := range batches {
		for range 150 {
			x.step()
		}
		if batch%4 == 3 {
			x.removeBelow(x.m.root.children["sim1"].in.Ino, x.r.IntN(2) == 0)
			x.removeBelow(metadata.PublishIno, false)
		}
		x.compare()
		if reopen != nil {
			x.open(reopen(x.s, batch%2 == 0))
			x.compare()
		}
	}
	if err := x.s.Close(); err != nil {
		t.Error(err)
	}
}

func TestRandomOperations(t *testing.T) {
	for _, weak := range []bool{false, true} {
		t.Run(fmt.Sprintf("memkv, colliding %v", weak), func(t *testing.T) {
			randomTest(t, weak, memkv.New(), nil)
		})
		t.Run(fmt.Sprintf("badgerkv, colliding %v", weak), func(t *testing.T) {
			dir := t.TempDir()
			kv := openBadger(t, dir)
			randomTest(t, weak, kv, func(s *metadata.Store, crash bool) metadata.KV {
				if crash { // what kill -9 leaves is what the files hold now
					settle(t, kv)
					next := t.TempDir()
					copyDir(t, dir, next)
					dir = next
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				kv = openBadger(t, dir)
				return kv
			})
		})
	}
}

// settle makes durable what may be written later, by changes that are made durable after it.
func settle(t *testing.T, kv metadata.KV) {
	t.Helper()
	key := []byte("~settled")
	err := errors.Join(
		kv.Update(t.Context(), func(txn metadata.KVTxn) error { return txn.Set(key, key) }),
		kv.Update(t.Context(), func(txn metadata.KVTxn) error { return txn.Delete(key) }),
	)
	if err != nil {
		t.Fatal(err)
	}
}

func openBadger(t testing.TB, dir string) metadata.KV {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// copyDir copies a database that is in use to an empty directory. Badger keeps flushing
// meanwhile, so it copies until no file was added, removed or entered in the manifest; then
// the copy is what a kill would have left.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	state := func() string {
		manifest, err := os.ReadFile(filepath.Join(from, "MANIFEST"))
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(entries, string(manifest))
	}
	for {
		before := state()
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil && state() == before {
			return
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(to), os.Mkdir(to, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
}
