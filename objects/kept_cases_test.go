package objects_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// TestOrphansSurvive kills stores whose only reference to some bytes is a handle.
func TestOrphansSurvive(t *testing.T) {
	k := newKeptRig(t, small(false))
	want := kit.Bytes(1, 0, 70_000)
	var inos []objects.Ino
	for _, name := range []string{"claimed", "forgotten", "closed"} {
		f := k.create("sim0", name)
		k.write(f, 5000, want)
		if err := k.store.Unlink(k.ctx(), k.root("sim0"), name); err != nil {
			t.Fatal(err)
		}
		inos = append(inos, f.Ino())
		if name == "closed" {
			k.close(f)
		}
	}
	k.kill()
	if got := k.store.Orphans(); !slices.Equal(got, inos[:2]) {
		t.Fatalf("orphans %v, want %v", got, inos[:2])
	}
	f := k.rig.open(inos[0])
	k.store.ReleaseUnclaimed(k.ctx())
	if _, err := k.store.OpenFile(k.ctx(), inos[1]); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("open what nobody claimed: %v", err)
	}
	k.write(f, 75_000, want[:100])
	k.kill()
	if got := k.store.Orphans(); !slices.Equal(got, inos[:1]) {
		t.Fatalf("orphans %v, want %v", got, inos[:1])
	}
	f = k.rig.open(inos[0])
	k.store.ReleaseUnclaimed(k.ctx())
	if got := k.read(f, 0, 100_000); !bytes.Equal(got, slices.Concat(make([]byte, 5000), want, want[:100])) {
		t.Errorf("%d bytes, first difference at %d", len(got), kit.FirstDiff(got[5000:], want))
	}
	if a := k.attr(inos[0]); a.Nlink != 0 || a.Size != 75_100 {
		t.Errorf("%+v", a)
	}
	k.close(f)
	if used := k.used("sim0"); used != 0 {
		t.Errorf("%v in use without a file", used)
	}
	k.kill()
	if got := k.store.Orphans(); len(got) != 0 {
		t.Errorf("orphans %v", got)
	}
}

// loosen marks an object as one whose content is not all kept.
func (k *keptRig) loosen(ino objects.Ino) {
	k.t.Helper()
	k.damage(k.kept("/objects")[0], func(w memfd.Words) {
		for at := range w.Len() / 16 {
			if w.At(16*at).Load() == uint64(ino) {
				w.At(16*at + 1).Or(8)
			}
		}
	})
}

// TestEmptyOrphansSurvive kills stores with files that are open, have no name, and had no content
// when they lost it.
func TestEmptyOrphansSurvive(t *testing.T) {
	k := newKeptRig(t, small(false))
	long := uint64(100_000)
	var inos []objects.Ino
	for _, name := range []string{"empty", "hole", "cut", "lost"} {
		f := k.create("sim0", name)
		switch name {
		case "hole":
			k.resize(f, long)
		case "cut":
			k.write(f, 0, kit.Bytes(1, 0, 5000))
			k.resize(f, 0)
		}
		k.close(f)
		f = k.rig.open(f.Ino())
		if err := k.store.Unlink(k.ctx(), k.root("sim0"), name); err != nil {
			t.Fatal(err)
		}
		if name == "lost" { // broken from here on, with a record that says that it is empty
			k.write(f, 0, kit.Bytes(1, 0, 9000))
		}
		inos = append(inos, f.Ino())
	}
	for range 2 {
		k.killAnd(func() { k.loosen(inos[3]) })
		if got := k.store.Orphans(); !slices.Equal(got, inos[:3]) {
			t.Fatalf("orphans %v, want %v", got, inos[:3])
		}
	}
	want := kit.Bytes(2, 0, 70_000)
	for i, size := range []uint64{0, long, 0} {
		f := k.rig.open(inos[i])
		if a := k.attr(inos[i]); a.Size != size || a.State != objects.StateLive {
			t.Errorf("%+v, want %d bytes", a, size)
		}
		if got := k.read(f, 0, int(long)); uint64(len(got)) != size || len(bytes.Trim(got, "\x00")) > 0 {
			t.Errorf("%d bytes, not %d zeros", len(got), size)
		}
		k.write(f, 0, want)
	}
	k.kill()
	for _, ino := range inos[:3] {
		if got := k.read(k.rig.open(ino), 0, len(want)); !bytes.Equal(got, want) {
			t.Errorf("object %d differs at %d", ino, kit.FirstDiff(got, want))
		}
	}
}

// TestDirectoriesSurvive kills stores that have directories open which are removed: by name, by a rename to theirs, and before they
// were opened.
func TestDirectoriesSurvive(t *testing.T) {
	k := newKeptRig(t, small(false))
	sim := k.root("sim0")
	removes := map[string]func() error{
		"removed": func() error { return k.store.Rmdir(k.ctx(), sim, "removed") },
		"replaced": func() error {
			return k.store.Rename(k.ctx(), metadata.Rename{From: sim, Name: "other", To: sim, NewName: "replaced"})
		},
		"late":   func() error { return k.store.Rmdir(k.ctx(), sim, "late") },
		"closed": func() error { return k.store.Rmdir(k.ctx(), sim, "closed") },
		"full":   func() error { return nil },
	}
	inos := k.openDirs("other", "removed", "replaced", "late", "closed", "full")
	for _, name := range []string{"late", "other"} {
		k.store.UnpinDir(inos[name])
	}
	if _, err := k.store.Create(k.ctx(), inos["full"], "file", metadata.Node{Mode: metadata.TypeRegular | 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := k.store.Rmdir(k.ctx(), sim, "full"); !errors.Is(err, metadata.ErrNotEmpty) {
		t.Error(err)
	}
	for name, remove := range removes {
		if err := remove(); err != nil {
			t.Fatal(name, err)
		}
	}
	k.store.PinDir(k.ctx(), inos["late"])
	k.store.UnpinDir(inos["closed"])
	k.store.Forget(inos["closed"], 1)
	mode, owner := metadata.Mode(0o700), uint32(8)
	if _, err := k.store.SetAttr(k.ctx(), inos["removed"], objects.Change{Mode: &mode, UID: &owner}); err != nil {
		t.Error(err)
	}
	want := []objects.Ino{inos["removed"], inos["replaced"], inos["late"]}
	slices.Sort(want)
	for range 2 {
		k.kill()
		if got := k.store.Orphans(); !slices.Equal(got, want) {
			t.Fatalf("orphans %v, want %v", got, want)
		}
	}
	for _, ino := range want[:2] {
		k.store.PinDir(k.ctx(), ino)
	}
	k.store.ReleaseUnclaimed(k.ctx())
	k.wantDir(inos["removed"], owner, mode)
	k.wantDir(inos["replaced"], 7, 0o751)
	k.wantGone(inos["late"])
	for _, ino := range want[:2] {
		k.store.UnpinDir(ino)
		k.wantGone(ino)
	}
	k.kill()
	if got := k.store.Orphans(); len(got) != 0 {
		t.Errorf("orphans %v", got)
	}
}

// openDirs makes directories, to each of which there is a handle and a reference.
func (k *keptRig) openDirs(names ...string) map[string]objects.Ino {
	k.t.Helper()
	inos := map[string]objects.Ino{}
	for _, name := range names {
		a, err := k.store.Create(k.ctx(), k.root("sim0"), name, metadata.Node{Mode: metadata.TypeDir | 0o751, UID: 7})
		if err != nil {
			k.t.Fatal(err)
		}
		k.store.PinDir(k.ctx(), a.Ino)
		k.store.Reference(a.Ino, 1)
		inos[name] = a.Ino
	}
	return inos
}

// wantDir checks a directory that was removed.
func (k *keptRig) wantDir(ino objects.Ino, owner uint32, mode metadata.Mode) {
	k.t.Helper()
	if a, err := k.store.Attr(k.ctx(), ino); err != nil || a.Nlink != 0 || a.Mode != metadata.TypeDir|mode || a.UID != owner {
		k.t.Errorf("directory %d: %+v, %v", ino, a, err)
	}
}

// wantGone checks that an inode does not exist.
func (k *keptRig) wantGone(ino objects.Ino) {
	k.t.Helper()
	if a, err := k.store.Attr(k.ctx(), ino); !errors.Is(err, metadata.ErrNotExist) {
		k.t.Errorf("inode %d is still there: %+v, %v", ino, a, err)
	}
}

// TestFreedWhileRead kills a store that has freed memory which a reader still uses.
func TestFreedWhileRead(t *testing.T) {
	k := newKeptRig(t, small(true))
	f := k.create("sim0", "f")
	k.write(f, 0, kit.Bytes(1, 0, 70_000))
	v, err := f.Views(k.ctx(), 0, 70_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []uint64{0, 70_000} {
		if _, err := k.store.SetAttr(k.ctx(), f.Ino(), objects.Change{Size: &size}); err != nil {
			t.Fatal(err)
		}
	}
	k.kill()
	again := k.rig.open(f.Ino())
	if got := k.read(again, 0, 70_000); len(got) != 70_000 || len(bytes.Trim(got, "\x00")) > 0 {
		t.Errorf("%d bytes, not all of them zeros", len(got))
	}
	k.close(again)
	if !bytes.Equal(bytes.Join(v.Slices, nil), kit.Bytes(1, 0, 70_000)) {
		t.Error("the reader's bytes have changed")
	}
	v.Release()
}

// TestExportedMemoryIsNotKept kills a store while files are in allocations of their own, which
// are not kept.
func TestExportedMemoryIsNotKept(t *testing.T) {
	k := newKeptRig(t, small(false))
	full, hole, again := k.create("sim0", "full"), k.create("sim0", "hole"), k.create("sim0", "again")
	k.write(full, 0, kit.Bytes(1, 0, 70_000))
	k.resize(hole, 70_000)
	k.write(again, 0, kit.Bytes(1, 0, 70_000))
	k.resize(again, 0)
	k.resize(again, 70_000)
	files := []*objects.File{full, hole, again}
	for _, f := range files {
		k.close(f)
		k.export(f.Ino(), objects.ExportOptions{})
		f = k.rig.open(f.Ino())
		k.write(f, 1, []byte("x")) // so that the table has the object, if it does not yet
	}
	k.kill()
	for _, f := range files {
		if a := k.attr(f.Ino()); a.State != objects.StateLost {
			t.Errorf("%+v", a)
		}
	}
	if used := k.used("sim0"); used != 0 {
		t.Errorf("%v in use by a lost object", used)
	}
}

// resize sets the size of a file.
func (k *keptRig) resize(f *objects.File, size uint64) {
	k.t.Helper()
	if _, err := k.store.SetAttr(k.ctx(), f.Ino(), objects.Change{Size: &size}); err != nil {
		k.t.Fatal(err)
	}
}

// kept returns the names of what is kept that contain part.
func (k *keptRig) kept(part string) []string {
	k.t.Helper()
	files, err := k.keeper.Kept("")
	if err != nil {
		k.t.Fatal(err)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.Contains(name, part) {
			names = append(names, name)
		}
		if err := files[name].Close(); err != nil {
			k.t.Error(err)
		}
	}
	if len(names) == 0 {
		k.t.Fatalf("nothing kept has %q in its name", part)
	}
	return names
}

// damage passes the words of a kept file to fn.
func (k *keptRig) damage(name string, fn func(w memfd.Words)) {
	k.t.Helper()
	files, err := k.keeper.Kept(name)
	if err != nil || len(files) != 1 {
		k.t.Fatal(len(files), err)
	}
	f := files[name]
	st, err := f.Stat()
	if err != nil {
		k.t.Fatal(err)
	}
	w, err := memfd.MapWords(f, 0, int(st.Size()/8))
	if err != nil {
		k.t.Fatal(err)
	}
	fn(w)
	if err := errors.Join(w.Unmap(), f.Close()); err != nil {
		k.t.Error(err)
	}
}

// TestMemoryThatDoesNotFit changes what is kept while no store runs: then objects are lost,
// and the device is usable.
func TestMemoryThatDoesNotFit(t *testing.T) {
	drop := func(k *keptRig, part string) {
		if err := k.keeper.Drop(k.kept(part)[0]); err != nil {
			k.t.Fatal(err)
		}
	}
	for name, then := range map[string]func(k *keptRig){
		"larger device":    func(k *keptRig) { k.params[0].Size *= 2 },
		"other allocation": func(k *keptRig) { k.params[0].MaxAlloc = 4 * devices.MiB },
		"other records":    func(k *keptRig) { k.kv = memkv.New() },
		"no table":         func(k *keptRig) { drop(k, "/objects") },
		"no slab":          func(k *keptRig) { drop(k, "/1/") },
		"other slab": func(k *keptRig) {
			f, err := os.Open("/dev/null")
			if err == nil {
				err = errors.Join(k.keeper.Keep(k.kept("/1/")[0], f), f.Close())
			}
			if err != nil {
				k.t.Fatal(err)
			}
		},
		"no magic": func(k *keptRig) {
			k.damage(k.kept("/objects")[0], func(w memfd.Words) { w.At(0).Store(w.At(0).Load() ^ 1<<60) })
		},
		"later epoch": func(k *keptRig) {
			k.damage(k.kept("/objects")[0], func(w memfd.Words) {
				w.At(3).Add(1)
				w.At(4).Add(1)
			})
		},
		"two pages in one place": func(k *keptRig) {
			name := k.kept("/1/")[0]
			size, err := strconv.Atoi(name[strings.LastIndex(name, "/")+1:])
			if err != nil {
				k.t.Fatal(err)
			}
			k.damage(name, func(w memfd.Words) {
				first := size / 8
				w.At(first + 3).Store(w.At(first + 1).Load())
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeptRig(t, small(false))
			f := k.create("sim0", "old")
			k.write(f, 0, kit.Bytes(1, 0, 3<<20))
			k.killAnd(func() { then(k) })
			a, err := k.store.Attr(k.ctx(), f.Ino())
			if err == nil && a.State != objects.StateLost || err != nil && !errors.Is(err, metadata.ErrNotExist) {
				t.Errorf("%+v, %v", a, err)
			}
			k.checkLeases()
			fresh := k.create("sim0", "new")
			want := kit.Bytes(2, 0, 2<<20)
			k.write(fresh, 0, want)
			k.kill()
			fresh = k.rig.open(fresh.Ino())
			if got := k.read(fresh, 0, len(want)); !bytes.Equal(got, want) {
				t.Errorf("a new file after the loss differs at %d", kit.FirstDiff(got, want))
			}
			k.close(fresh)
		})
	}
}

// TestMemoryOfAnotherVersion opens a store over memory of another version of hmcfs, which it refuses. The
// version that wrote it continues.
func TestMemoryOfAnotherVersion(t *testing.T) {
	k := newKeptRig(t, small(false))
	f, want := k.create("sim0", "f"), kit.Bytes(1, 0, 3<<20)
	k.write(f, 0, want)
	add := func(n int64) {
		k.damage(k.kept("/objects")[0], func(w memfd.Words) { w.At(0).Add(uint64(n)) })
	}
	k.killAnd(func() {
		for by, found := range map[int64]string{1: "version 2", -1: "version 0"} {
			add(by)
			if err := k.startRefused(); err == nil || !strings.Contains(err.Error(), found) {
				t.Errorf("the memory is of %s: %v", found, err)
			}
			add(-by)
		}
	})
	if got := k.read(k.rig.open(f.Ino()), 0, len(want)); !bytes.Equal(got, want) {
		t.Errorf("the file differs at %d", kit.FirstDiff(got, want))
	}
	k.checkLeases()
}

// startRefused opens a store, and closes it if it has opened.
func (k *keptRig) startRefused() error {
	k.t.Helper()
	meta, err := metadata.Open(k.ctx(), k.kv, metadata.Options{KeepNameless: true})
	if err != nil {
		k.t.Fatal(err)
	}
	engine, err := transport.New(k.moves)
	if err != nil {
		k.t.Fatal(err)
	}
	devs := k.newDevices()
	store, refusal := objects.Open(k.ctx(), objects.Options{
		Meta: meta, Engine: engine, Devices: devs, Keeper: k.keeper, Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
	})
	if refusal == nil {
		err = store.Close(k.ctx(), objects.CloseOptions{Keep: true, Leave: true})
	}
	for _, d := range devs {
		err = errors.Join(err, d.Close())
	}
	if err = errors.Join(err, engine.Close()); err != nil {
		k.t.Error(err)
	}
	return refusal
}

// TestAbsentDevices starts stores without a device whose memory is kept: it stays if the records know the device, and is freed if not.
func TestAbsentDevices(t *testing.T) {
	k := newKeptRig(t, small(false), small(false))
	both, want := k.params, kit.Bytes(1, 0, 3<<20)
	f := k.create("sim1", "f")
	k.write(f, 0, want)
	k.close(f)
	k.killAnd(func() { k.params = both[:1] })
	k.store.ReleaseUnclaimed(k.ctx())
	k.killAnd(func() { k.params = both })
	f = k.rig.open(f.Ino())
	if got := k.read(f, 0, len(want)); !bytes.Equal(got, want) {
		t.Errorf("a file of a device that was absent differs at %d", kit.FirstDiff(got, want))
	}
	k.close(f)
	k.killAnd(func() { k.params, k.kv = both[:1], memkv.New() })
	k.store.ReleaseUnclaimed(k.ctx())
	for _, name := range k.kept("mem/") {
		if !strings.HasPrefix(name, "mem/sim0/") {
			t.Errorf("still kept is %s", name)
		}
	}
	if freed := k.store.Recovery().Freed; freed < 3<<20 {
		t.Errorf("%v were freed, and that device had a file of 3 MiB", freed)
	}
	k.store.ReleaseUnclaimed(k.ctx())
	k.checkLeases()
}

// TestCrashEndsKeptMemory loses the memory of a device whose next epoch is kept.
func TestCrashEndsKeptMemory(t *testing.T) {
	k := newKeptRig(t, small(false))
	old := k.create("sim0", "old")
	k.write(old, 0, kit.Bytes(1, 0, 1<<20))
	crash(k.devs[0])
	fresh := k.create("sim0", "new")
	want := kit.Bytes(2, 0, 1<<20)
	k.write(fresh, 0, want)
	for range 2 {
		k.kill()
		if a := k.attr(old.Ino()); a.State != objects.StateLost {
			t.Errorf("%+v", a)
		}
		f := k.rig.open(fresh.Ino())
		if got := k.read(f, 0, len(want)); !bytes.Equal(got, want) {
			t.Errorf("differs at %d", kit.FirstDiff(got, want))
		}
		k.close(f)
	}
}

func crash(d devices.Device) { d.(interface{ Crash() }).Crash() } //nolint:errcheck // a simulated device

// TestHostOrphansSurvive is TestOrphansSurvive for files of the host tier, which outlive the
// process without a keeper.
func TestHostOrphansSurvive(t *testing.T) {
	kit.Check(t)
	tier := host.Options{Dir: t.TempDir(), NoMount: true}
	t.Cleanup(func() {
		left, err := host.Leftover(tier)
		for _, l := range left {
			err = errors.Join(err, l.Remove())
		}
		if err != nil || len(left) != 1 {
			t.Errorf("%d tiers are left to be removed, %v", len(left), err)
		}
	})
	reg := devices.NewRegistry(host.NewDriver(tier))
	k := &keptRig{keeper: newKeeper(t), open: func() []devices.Device {
		dev, err := reg.Open(t.Context(), "host:0,size=64MiB")
		if err != nil {
			t.Fatal(err)
		}
		return []devices.Device{dev}
	}}
	k.rig = &rig{t: t, keeper: k.keeper, devs: k.open()}
	k.start()
	t.Cleanup(k.stop)
	want := kit.Bytes(1, 0, 70_000)
	var inos []objects.Ino
	for _, name := range []string{"claimed", "forgotten"} {
		f := k.create("host", name)
		k.write(f, 0, want)
		if err := k.store.Unlink(k.ctx(), k.root("host"), name); err != nil {
			t.Fatal(err)
		}
		inos = append(inos, f.Ino())
	}
	k.killAnd(func() {})
	if got := k.store.Orphans(); !slices.Equal(got, inos) {
		t.Fatalf("orphans %v, want %v", got, inos)
	}
	f := k.rig.open(inos[0])
	k.store.ReleaseUnclaimed(k.ctx())
	if got := k.read(f, 0, 80_000); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, first difference at %d", len(got), kit.FirstDiff(got, want))
	}
	if _, err := k.store.OpenFile(k.ctx(), inos[1]); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("open what nobody claimed: %v", err)
	}
	k.close(f)
	k.killAnd(func() {})
	if got := k.store.Orphans(); len(got) != 0 {
		t.Errorf("orphans %v", got)
	}
}
