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
	"github.com/hmcfs/hmcfs/metadata/memkv"
)

// randomRun drives a store and the model with the same random operations.
type randomRun struct {
	t     *testing.T
	r     *rand.Rand
	s     *metadata.Store
	m     *model
	weak  bool // names collide
	clock int64
	inos  []metadata.Ino // all numbers ever given, dead ones too
	log   []string
}

// now is a clock that the run advances by hand.
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

// weakHash puts all names on three places.
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

// name prefers one that the directory has.
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
		{30, x.create}, {10, x.link}, {14, x.unlink}, {5, x.rmdir}, {30, x.rename},
		{8, x.moveDevice}, {8, x.update}, {8, x.setXattr}, {4, x.removeXattr},
		{8, x.bindKey}, {10, x.saveContent},
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

func (x *randomRun) create() {
	types := []metadata.Mode{
		metadata.TypeRegular, metadata.TypeRegular, metadata.TypeDir, metadata.TypeDir,
		metadata.TypeSymlink, metadata.TypeFIFO, metadata.TypeBlock,
	}
	node := metadata.Node{
		Mode: types[x.r.IntN(len(types))] | metadata.Mode(x.r.Uint32N(0o10000)),
		UID:  x.r.Uint32(), GID: x.r.Uint32(),
	}
	switch node.Mode.Type() {
	case metadata.TypeSymlink:
		node.Target = fmt.Sprint("to/", x.r.Uint32())
	case metadata.TypeBlock:
		node.Rdev = x.r.Uint32()
	}
	dir := x.dir()
	name := x.name(dir)
	in, err := x.s.Create(x.t.Context(), dir, name, node)
	if err == nil {
		x.inos = append(x.inos, in.Ino)
	}
	x.agree(fmt.Sprintf("create %d/%s %o -> %d", dir, name, node.Mode, in.Ino), err,
		x.m.create(dir, name, node, in.Ino))
}

func (x *randomRun) link() {
	ino, dir := x.ino(), x.dir()
	name := x.name(dir)
	_, err := x.s.Link(x.t.Context(), ino, dir, name)
	x.agree(fmt.Sprintf("link %d to %d/%s", ino, dir, name), err, x.m.link(ino, dir, name))
}

func (x *randomRun) unlink() {
	dir := x.dir()
	name := x.name(dir)
	in, err := x.s.Unlink(x.t.Context(), dir, name)
	x.agree(fmt.Sprintf("unlink %d/%s", dir, name), err, x.m.remove(dir, name, false))
	if _, lives := x.m.nodes[in.Ino]; err == nil && lives != (in.Nlink > 0) {
		x.t.Fatalf("unlink answers %d links for inode %d", in.Nlink, in.Ino)
	}
}

func (x *randomRun) rmdir() {
	dir := x.dir()
	name := x.name(dir)
	_, err := x.s.Rmdir(x.t.Context(), dir, name)
	x.agree(fmt.Sprintf("rmdir %d/%s", dir, name), err, x.m.remove(dir, name, true))
}

func (x *randomRun) randomRename() metadata.Rename {
	r := metadata.Rename{From: x.dir(), To: x.dir()}
	if x.r.IntN(3) == 0 {
		r.To = r.From
	}
	r.Name, r.NewName = x.name(r.From), x.name(r.To)
	r.Flags = []metadata.RenameFlags{0, 0, 0, metadata.NoReplace, metadata.Exchange}[x.r.IntN(5)]
	return r
}

func (x *randomRun) rename() {
	r := x.randomRename()
	_, err := x.s.Rename(x.t.Context(), r)
	x.agree(fmt.Sprintf("rename %+v", r), err, x.m.rename(r, nil, 0, nil))
}

func (x *randomRun) moveDevice() {
	r := x.randomRename()
	r.Flags &^= metadata.Exchange
	device := metadata.DeviceName(fmt.Sprintf("sim%d", x.r.IntN(2)))
	mapped, epoch := x.mappings(), metadata.Epoch(x.r.Uint64N(9))
	_, err := x.s.MoveDevice(x.t.Context(), r, device, epoch, mapped)
	x.agree(fmt.Sprintf("move to %s %+v", device, r), err, x.m.rename(r, &device, epoch, mapped))
}

func (x *randomRun) change() func(*metadata.Inode) error {
	size, epoch, perm := x.r.Uint64(), metadata.Epoch(x.r.Uint64()), metadata.Mode(x.r.Uint32N(0o10000))
	owner, stamp := x.r.Uint32(), metadata.Timespec{Sec: x.r.Int64() - 1<<62, Nsec: x.r.Uint32N(1e9)}
	return func(in *metadata.Inode) error {
		if !in.IsDir() {
			in.Size = size
		}
		in.Epoch, in.Allocated, in.Path = epoch, size/2, "h2d"
		in.Mode = in.Mode.Type() | perm
		in.UID, in.GID = owner, owner+1
		in.Atime, in.Mtime, in.Ctime = stamp, stamp, x.m.now
		return nil
	}
}

func (x *randomRun) update() {
	ino, fn := x.ino(), x.change()
	_, err := x.s.Update(x.t.Context(), ino, fn)
	n, want := x.m.node(ino)
	if want == nil {
		want = fn(&n.in)
	}
	x.agree(fmt.Sprintf("update %d", ino), err, want)
}

func (x *randomRun) saveContent() {
	ino, fn, mapped := x.ino(), x.change(), x.mappings()
	_, err := x.s.SaveContent(x.t.Context(), ino, fn, mapped)
	n, want := x.m.node(ino)
	if want == nil {
		want = fn(&n.in)
		n.setMaps(mapped)
	}
	x.agree(fmt.Sprintf("save %d mappings of %d", len(mapped), ino), err, want)
}

func (x *randomRun) setXattr() {
	ino, name := x.ino(), fmt.Sprintf("user.%d", x.r.IntN(4))
	value := fmt.Sprint(x.r.Uint64())[:x.r.IntN(8)]
	flags := metadata.XattrFlags(x.r.IntN(3))
	err := x.s.SetXattr(x.t.Context(), ino, name, []byte(value), flags)
	x.agree(fmt.Sprintf("setxattr %d %s %d", ino, name, flags), err, x.m.setXattr(ino, name, value, flags))
}

func (x *randomRun) removeXattr() {
	ino, name := x.ino(), fmt.Sprintf("user.%d", x.r.IntN(4))
	err := x.s.RemoveXattr(x.t.Context(), ino, name)
	x.agree(fmt.Sprintf("removexattr %d %s", ino, name), err, x.m.removeXattr(ino, name))
}

func (x *randomRun) bindKey() {
	ino, key := x.ino(), []string{"", "a", "b", "c;1", "d"}[x.r.IntN(5)]
	err := x.s.BindKey(x.t.Context(), ino, key)
	x.agree(fmt.Sprintf("bind %d to %q", ino, key), err, x.m.bindKey(ino, key))
}

func (x *randomRun) dropDevice() {
	x.tick()
	name, keepTree := metadata.DeviceName("sim1"), x.r.IntN(2) == 0
	n, err := x.s.DropDevice(x.t.Context(), name, keepTree)
	want := x.m.dropDevice(x.m.root.children[string(name)], keepTree)
	x.agree(fmt.Sprintf("drop %s, keep tree %v", name, keepTree), err, nil)
	if n != want {
		x.t.Fatalf("DropDevice removed %d inodes, want %d", n, want)
	}
	// A drop touches a directory once for each batch, the model for each name;
	// with one time for all that is the same, except where nothing was touched.
}

// randomTest runs batches of operations; reopen, when given, replaces the KV
// between two batches.
func randomTest(t *testing.T, weak bool, kv metadata.KV, reopen func(s *metadata.Store, crash bool) metadata.KV) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	x := &randomRun{t: t, r: rand.New(rand.NewPCG(seed, 2)), m: newModel(), weak: weak, clock: 1e9}
	x.tick()
	x.m.root.in.Atime, x.m.root.in.Btime = x.m.now, x.m.now
	x.m.touch(x.m.root)
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
			x.dropDevice()
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
			randomTest(t, weak, openBadger(t, dir), func(s *metadata.Store, crash bool) metadata.KV {
				if crash { // what kill -9 leaves is what the files hold now
					next := t.TempDir()
					copyDir(t, dir, next)
					dir = next
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return openBadger(t, dir)
			})
		})
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

// copyDir copies a database that is in use to an empty directory. Badger goes
// on flushing meanwhile, so it copies until nothing has come, gone or been
// entered in the manifest; then the copy is what a kill would have left.
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
		return fmt.Sprint(entries, manifest)
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
