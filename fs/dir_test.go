package fs

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// openDir opens a directory.
func (r *rig) openDir(ino uint64) uint64 {
	r.t.Helper()
	var out fuse.OpenOut
	r.ok(r.OpenDir(nil, &fuse.OpenIn{InHeader: header(ino)}, &out))
	return out.Fh
}

// entriesAt reads one answer of a directory.
func (r *rig) entriesAt(ino, fh, off uint64, size int) []fuse.DirEntry {
	r.t.Helper()
	list := fuse.NewDirEntryList(make([]byte, size), off)
	in := fuse.ReadIn{InHeader: header(ino), Fh: fh, Offset: off, Size: uint32(size)}
	r.ok(r.ReadDir(nil, &in, list))
	entries, err := fuse.ParseDirEntries(list.Bytes())
	must(r.t, err)
	return entries
}

// listAll reads a directory to its end.
func (r *rig) listAll(ino uint64) []string {
	r.t.Helper()
	fh := r.openDir(ino)
	defer r.ReleaseDir(&fuse.ReleaseIn{Fh: fh})
	var names []string
	for off := uint64(0); ; {
		entries := r.entriesAt(ino, fh, off, 4096)
		if len(entries) == 0 {
			return names
		}
		for _, e := range entries {
			names = append(names, e.Name)
			off = e.Off
		}
	}
}

func TestReadDirRoot(t *testing.T) {
	r := newRig(t)
	names := r.listAll(rootIno)
	slices.Sort(names)
	if want := []string{".", "..", ".hmcfs", "keys", "publish", "sim0", "sim1"}; !slices.Equal(names, want) {
		t.Errorf("root holds %v, want %v", names, want)
	}
	if got := r.listAll(uint64(controlIno)); !slices.Equal(got, []string{".", "..", "config", "stats", "topology.json", "version"}) {
		t.Errorf("%s holds %v", controlName, got)
	}
	if got := r.listAll(uint64(keysIno)); !slices.Equal(got, []string{".", ".."}) {
		t.Errorf("keys holds %v", got)
	}
	if a := r.stat(rootIno); a.Nlink != 2+5 {
		t.Errorf("root has %d links, want 7", a.Nlink)
	}
}

func TestReadDirPages(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	want := map[string]bool{".": true, "..": true}
	for i := range 3*pageEntries + 7 {
		name := fmt.Sprintf("file%04d", i)
		r.create(sim0, name).release()
		want[name] = true
	}
	names := r.listAll(sim0)
	if len(names) != len(want) {
		t.Fatalf("%d names, want %d", len(names), len(want))
	}
	for _, name := range names {
		if !want[name] {
			t.Fatalf("%q is listed twice or wrongly", name)
		}
		delete(want, name)
	}
}

// TestReadDirSeeks returns to earlier positions of a listing, as seekdir does.
func TestReadDirSeeks(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	for i := range 100 {
		r.create(sim0, fmt.Sprintf("f%d", i)).release()
	}
	fh := r.openDir(sim0)
	all := r.entriesAt(sim0, fh, 0, 1<<20)
	if len(all) != 102 {
		t.Fatalf("%d entries, want 102", len(all))
	}
	for i := len(all) - 1; i >= 0; i -= 7 {
		rest := r.entriesAt(sim0, fh, all[i].Off, 1<<20)
		if len(rest) != len(all)-i-1 {
			t.Fatalf("behind entry %d: %d entries, want %d", i, len(rest), len(all)-i-1)
		}
		if len(rest) > 0 && rest[0].Name != all[i+1].Name {
			t.Fatalf("behind entry %d comes %q, want %q", i, rest[0].Name, all[i+1].Name)
		}
	}
	// rewinddir sees what is new.
	r.create(sim0, "new").release()
	if again := r.entriesAt(sim0, fh, 0, 1<<20); len(again) != 103 {
		t.Errorf("%d entries after rewinding, want 103", len(again))
	}
	r.want(r.ReadDir(nil, &fuse.ReadIn{Fh: 99999}, fuse.NewDirEntryList(nil, 0)), syscall.EBADF)
}

// TestReadDirDuringRenames lists a directory while other names are added and removed: a name
// that stays is listed exactly once.
func TestReadDirDuringRenames(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	stay := map[string]int{}
	for i := range 300 {
		r.create(sim0, fmt.Sprintf("stay%d", i)).release()
		r.create(sim0, fmt.Sprintf("move%d", i)).release()
		stay[fmt.Sprintf("stay%d", i)] = 0
	}
	fh := r.openDir(sim0)
	step := 0
	for off := uint64(0); ; {
		entries := r.entriesAt(sim0, fh, off, 512)
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if _, ok := stay[e.Name]; ok {
				stay[e.Name]++
			}
			off = e.Off
		}
		in := fuse.RenameIn{InHeader: header(sim0), Newdir: sim0}
		r.ok(r.Rename(nil, &in, fmt.Sprintf("move%d", step), fmt.Sprintf("moved%d", step)))
		step++
	}
	for name, n := range stay {
		if n != 1 {
			t.Errorf("%s listed %d times", name, n)
		}
	}
}

func TestReadDirPlus(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	f := r.create(sim0, "a")
	r.create(sim0, "b").release()
	fh := r.openDir(sim0)
	plus := func(size int) ([]fuse.DirEntry, []fuse.EntryOut) {
		list := fuse.NewDirEntryList(make([]byte, size), 0)
		in := fuse.ReadIn{InHeader: header(sim0), Fh: fh, Size: uint32(size)}
		r.ok(r.ReadDirPlus(nil, &in, list))
		entries, outs, err := fuse.ParseDirLookupEntries(list.Bytes())
		must(t, err)
		return entries, outs
	}
	entries, outs := plus(4096)
	if len(entries) != 4 {
		t.Fatalf("%d entries, want 4", len(entries))
	}
	for i, e := range entries {
		switch {
		case e.Name == "." || e.Name == "..":
			if outs[i].NodeId != 0 {
				t.Errorf("%s comes with a reference", e.Name)
			}
		case outs[i].NodeId != e.Ino || outs[i].AttrTimeout() == 0:
			t.Errorf("%s: node %d of inode %d, kept %v", e.Name, outs[i].NodeId, e.Ino, outs[i].AttrTimeout())
		}
	}
	// A page that was read before a rename must not contain the old name afterwards.
	in := fuse.RenameIn{InHeader: header(sim0), Newdir: sim0}
	r.ok(r.Rename(nil, &in, "a", "c"))
	entries, _ = plus(4096)
	for _, e := range entries {
		if e.Name == "a" {
			t.Error("a name that is gone is listed with attributes")
		}
	}
	// The references were counted: one of create, two of listings.
	f.release()
	h := header(sim0)
	r.ok(r.Unlink(nil, &h, "c"))
	r.Forget(f.ino, 2)
	r.stat(f.ino)
	r.Forget(f.ino, 1)
	var out fuse.AttrOut
	r.want(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(f.ino)}, &out), syscall.ENOENT)
}

func TestReadDirKeys(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	const keys = pageEntries + 50
	for i := range keys {
		f := r.create(sim0, fmt.Sprintf("f%d", i))
		in := fuse.SetXAttrIn{InHeader: header(f.ino)}
		r.ok(r.SetXAttr(nil, &in, keyXattr, fmt.Appendf(nil, "key%04d", i)))
		f.release()
	}
	names := r.listAll(uint64(keysIno))
	if len(names) != keys+2 {
		t.Fatalf("%d names, want %d", len(names), keys+2)
	}
	for i, name := range names[2:] {
		if want := fmt.Sprintf("key%04d", i); name != want {
			t.Fatalf("entry %d is %q, want %q", i, name, want)
		}
	}
	fh := r.openDir(uint64(keysIno))
	first := r.entriesAt(uint64(keysIno), fh, 0, 4096)
	again := r.entriesAt(uint64(keysIno), fh, first[9].Off, 4096)
	if again[0].Name != first[10].Name {
		t.Errorf("behind %q comes %q, want %q", first[9].Name, again[0].Name, first[10].Name)
	}
}

func TestReadDirOfRemovedDirectory(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	var out fuse.EntryOut
	r.ok(r.Mkdir(nil, &fuse.MkdirIn{InHeader: header(sim0), Mode: 0o755}, "d", &out))
	fh := r.openDir(out.NodeId)
	h := header(sim0)
	r.ok(r.Rmdir(nil, &h, "d"))
	for _, e := range r.entriesAt(out.NodeId, fh, 0, 4096) {
		if e.Name != "." && e.Name != ".." {
			t.Errorf("a removed directory holds %q", e.Name)
		}
	}
}
