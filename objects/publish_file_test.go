package objects_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// moved returns the number of bytes that the engine has copied.
func (r *rig) moved() uint64 {
	r.t.Helper()
	var sum uint64
	for _, s := range r.engine.Stats().Paths {
		sum += uint64(s.Bytes)
	}
	return sum
}

// TestRenamePublish: a file is renamed into publish/ and out of it on its device
// without a copy, and is unchanged.
func TestRenamePublish(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(true))
	const n = 300_000
	ino := r.file("sim0", "t", 7, n)
	for name, value := range map[string]string{"user.hmc.key": "name", "user.hmc.blobs": "100000,200000", "user.x": "y"} {
		if err := r.store.SetXattr(r.ctx(), ino, name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	e := r.store.Listen()
	defer e.Close()
	before := r.moved()
	if err := r.offer("sim0", "t", "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.KeyIno(r.ctx(), "name"); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("it has its key still: %v", err)
	}
	if a := r.attr(ino); a.Parent != metadata.PublishIno || a.Device != "sim0" || a.Size != n {
		t.Errorf("published: %+v", a)
	}
	if err := r.fetch("k", "sim0", "u"); err != nil {
		t.Fatal(err)
	}
	if now := r.moved(); now != before {
		t.Errorf("%d bytes were moved", now-before)
	}
	if got, want := r.heard(e, 3), "removed name sim0 300000\npublished k sim0 300000\nconsumed k sim0 300000\n"; got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
	f := r.open(ino)
	if at := kit.DiffAt(r.read(f, 0, n+1), 7, 0); at >= 0 || f.Published() {
		t.Errorf("other bytes from %d on; published %v", at, f.Published())
	}
	r.write(f, 5, []byte("changed"))
	r.close(f)
	// Out of publish/ to another device, over an existing file.
	r.file("sim1", "v", 8, 10)
	if err := r.offer("sim0", "u", "k"); err != nil {
		t.Fatal(err)
	}
	if err := r.fetch("k", "sim1", "v"); err != nil {
		t.Fatal(err)
	}
	want := kit.Bytes(7, 0, n)
	copy(want[5:], "changed")
	f = r.open(ino)
	defer r.close(f)
	if at := kit.FirstDiff(r.read(f, 0, n+1), want); at >= 0 || r.attr(ino).Device != "sim1" {
		t.Errorf("other bytes from %d on", at)
	}
	if value, err := r.store.GetXattr(r.ctx(), ino, "user.x"); err != nil || string(value) != "y" {
		t.Errorf("attribute %q, %v", value, err)
	}
}

// TestRenameOfBound: memory of a publisher is copied, so its next write is not in the
// receiver's file.
func TestRenameOfBound(t *testing.T) {
	kit.Check(t)
	for _, device := range []string{"sim0", "sim1"} {
		t.Run(device, func(t *testing.T) {
			r := newRig(t, small(false), small(false))
			a := r.user(0, 1, 1<<20)
			p := a.mustPublish(a.keyed("k", 100, 50_000, 60_000, 7))
			ino := r.published("k")
			if err := r.fetch("k", device, "t"); err != nil {
				t.Fatal(err)
			}
			if err := r.ended(p); err != nil {
				t.Fatal(err)
			}
			a.fill(100, kit.Bytes(9, 0, 1<<20-100))
			want := append(kit.Bytes(1, 100, 50_000), kit.Bytes(1, 60_000, 7)...)
			check := func() {
				t.Helper()
				f := r.open(ino)
				defer r.close(f)
				if at := kit.FirstDiff(r.read(f, 0, 60_000), want); at >= 0 || f.Foreign() {
					t.Fatalf("other bytes from %d on; foreign %v", at, f.Foreign())
				}
			}
			check()
			a.close()
			check()
			if a := r.attr(ino); a.State != objects.StateLive || a.Bound != metadata.Unbound || string(a.Device) != device {
				t.Fatalf("it is %+v", a)
			}
			f := r.open(ino)
			r.write(f, 60_000, []byte("longer"))
			r.close(f)
		})
	}
}

// TestOfferRefused: a file that others could still change can't be published, and a
// published file can't be changed.
func TestOfferRefused(t *testing.T) {
	kit.Check(t)
	r := newRig(t, sim.Params{Size: 32 << 20}, small(false))
	ino := r.file("sim0", "t", 7, 5000)
	dir, err := r.store.Create(r.ctx(), r.root("sim0"), "d", metadata.Node{Mode: metadata.TypeDir | 0o755})
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	f := r.open(ino)
	want("an open file", r.offer("sim0", "t", "k"), objects.ErrBusy)
	r.close(f)
	if _, err = r.store.Link(r.ctx(), ino, dir.Ino, "second"); err != nil {
		t.Fatal(err)
	}
	want("a file with two names", r.offer("sim0", "t", "k"), metadata.ErrTooManyLinks)
	if err = r.store.Unlink(r.ctx(), dir.Ino, "second"); err != nil {
		t.Fatal(err)
	}
	out, err := r.store.Export(r.ctx(), ino, objects.Caller{}, objects.ExportOptions{})
	if err == nil {
		want("an exported file", r.offer("sim0", "t", "k"), objects.ErrBusy)
		if err = errors.Join(out.Handle.Close(), r.store.EndExport(r.ctx(), ino)); err != nil {
			t.Fatal(err)
		}
	}
	a := r.user(0, 1, 1<<20)
	bound := a.mustBind(a.keyed("b", 0, 100))
	in := r.attr(bound)
	want("bound memory", r.store.Rename(r.ctx(), metadata.Rename{From: in.Parent, Name: in.Name, To: metadata.PublishIno, NewName: "k"}), objects.ErrBusy)
	want("a directory", r.offer("sim0", "d", "k"), metadata.ErrIsDir)
	want("what is not there", r.offer("sim0", "none", "k"), metadata.ErrNotExist)
	exchange := metadata.Rename{From: r.root("sim0"), Name: "t", To: metadata.PublishIno, NewName: "k", Flags: metadata.Exchange}
	want("an exchange", r.store.Rename(r.ctx(), exchange), metadata.ErrPermission)
	if r.isPublished("k") {
		t.Fatal("it is published")
	}
	if err = r.offer("sim0", "t", "k"); err != nil {
		t.Fatal(err)
	}
	r.file("sim0", "other", 8, 5)
	want("a name that is taken", r.offer("sim0", "other", "k"), metadata.ErrExist)
	_, err = a.publish(a.keyed("k", 0, 100))
	want("a key that is taken", err, metadata.ErrExist)
	want("a rename inside", r.store.Rename(r.ctx(), metadata.Rename{From: metadata.PublishIno, Name: "k", To: metadata.PublishIno, NewName: "l"}), metadata.ErrPermission)
	exchange = metadata.Rename{From: metadata.PublishIno, Name: "k", To: r.root("sim0"), NewName: "other", Flags: metadata.Exchange}
	want("an exchange", r.store.Rename(r.ctx(), exchange), metadata.ErrPermission)
	want("to the root", r.store.Rename(r.ctx(), metadata.Rename{From: metadata.PublishIno, Name: "k", To: metadata.RootIno, NewName: "l"}), metadata.ErrPermission)
	_, err = r.store.Create(r.ctx(), metadata.PublishIno, "new", metadata.Node{Mode: metadata.TypeRegular | 0o644})
	want("a new file", err, metadata.ErrPermission)
	_, err = r.store.Link(r.ctx(), r.published("k"), r.root("sim0"), "l")
	want("a link of it", err, metadata.ErrPermission)
	_, err = r.store.Link(r.ctx(), r.file("sim0", "x", 1, 1), metadata.PublishIno, "l")
	want("a link in it", err, metadata.ErrPermission)
	size := uint64(5)
	_, err = r.store.SetAttr(r.ctx(), ino, objects.Change{Size: &size})
	want("cutting it", err, objects.ErrBusy)
	_, err = r.store.Export(r.ctx(), ino, objects.Caller{}, objects.ExportOptions{})
	want("exporting it", err, objects.ErrBusy)
	f = r.open(ino)
	_, err = f.WriteAt(r.ctx(), []byte("x"), objects.Write{})
	want("writing it", err, objects.ErrBusy)
	for mode := objects.AllocateExtend; mode <= objects.AllocateZeroKeepSize; mode++ {
		want(fmt.Sprint("allocation ", mode), f.Allocate(r.ctx(), mode, 0, 100), objects.ErrBusy)
	}
	src := r.open(r.file("sim0", "src", 3, 100))
	_, err = r.store.CopyRange(r.ctx(), objects.CopyRange{Dst: f, Src: src, N: 100})
	want("copying to it", err, objects.ErrBusy)
	r.close(src)
	if at := kit.DiffAt(r.read(f, 0, 6000), 7, 0); at >= 0 || f.Size() != 5000 {
		t.Errorf("other bytes from %d on, size %d", at, f.Size())
	}
	r.close(f)
	want("a key", r.store.SetXattr(r.ctx(), ino, "user.hmc.key", []byte("n"), 0), metadata.ErrPermission)
}

// TestOfferHostFile: a mapped file of the host tier can't be published: a mapping
// outlives its handle.
func TestOfferHostFile(t *testing.T) {
	kit.Check(t)
	r, _ := hostAndCard(t, sim.Params{Size: 32 << 20}, transport.Options{})
	const n = 200_000
	ino := r.file("host", "t", 7, n)
	f := r.open(ino)
	backing := f.Backing()
	if backing == nil {
		t.Fatal("no file")
	}
	// For passthrough, the kernel opens the file anew for each handle.
	own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", backing.Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	window, err := unix.Mmap(int(own.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	r.close(f)
	for _, what := range []string{"a mapped and open file", "a mapped file"} {
		if err := r.offer("host", "t", "k"); !errors.Is(err, objects.ErrBusy) {
			t.Fatalf("%s: %v", what, err)
		}
		if what == "a mapped and open file" {
			if err := own.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := unix.Munmap(window); err != nil {
		t.Fatal(err)
	}
	if err := r.offer("host", "t", "k"); err != nil {
		t.Fatal(err)
	}
	f = r.open(ino)
	if p, err := deliver(r.ctx(), f, 0, n); err != nil || kit.DiffAt(p, 7, 0) >= 0 {
		t.Fatalf("%d bytes, %v", len(p), err)
	}
	r.close(f)
	if _, err := r.store.Attr(r.ctx(), ino); !errors.Is(err, metadata.ErrNotExist) {
		t.Fatalf("received, and there still: %v", err)
	}
}

// TestHandlesOfWhatWasMoved: a handle of a file of publish/ that is moved away gets an
// error, and can't remove the new owner's file.
func TestHandlesOfWhatWasMoved(t *testing.T) {
	kit.Check(t)
	r, _ := hostAndCard(t, sim.Params{Size: 32 << 20}, transport.Options{})
	for _, device := range []string{"host", "sim0"} {
		ino := r.mustOffer(device, device, 7, 5000)
		f := r.open(ino)
		if _, err := deliver(r.ctx(), f, 0, 4000); err != nil {
			t.Fatal(err)
		}
		other := map[string]string{"host": "sim0", "sim0": "host"}[device]
		if err := r.fetch(device, other, "far"); !errors.Is(err, objects.ErrBusy) {
			t.Fatalf("copied while it is open: %v", err)
		}
		if err := r.fetch(device, device, "near"); err != nil {
			t.Fatal(err)
		}
		if _, err := deliver(r.ctx(), f, 4000, 1000); !errors.Is(err, metadata.ErrNotExist) {
			t.Fatalf("what somebody else has received: %v", err)
		}
		g := r.open(ino)
		if g.Backing() != nil && !g.ByDaemon() {
			t.Fatal("the kernel is to serve a file that others have open otherwise")
		}
		r.close(f)
		r.write(g, 0, []byte("new"))
		r.close(g)
		g = r.open(ino)
		if got := r.read(g, 0, 6000); !bytes.Equal(got[:3], []byte("new")) || kit.DiffAt(got[3:], 7, 3) >= 0 || g.ByDaemon() {
			t.Fatal("other bytes than the new owner's")
		}
		r.close(g)
		if err := r.store.Unlink(r.ctx(), r.root(device), "near"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPublicationsOfAbsentDevices lists publications of which some are on a device that is no
// longer mounted: a page that has fewer entries for that reason is not the end of the list.
func TestPublicationsOfAbsentDevices(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(true), small(true))
	const all = 1200
	for i := range all {
		r.mustOffer([]string{"sim0", "sim1"}[i%2], fmt.Sprintf("k%04d", i), uint64(i), 1)
	}
	if err := r.store.Close(r.ctx(), objects.CloseOptions{}); err != nil {
		t.Fatal(err)
	}
	devs := r.devs
	r.devs = devs[:1]
	r.reopen()
	found, err := objects.LocalKeys{Store: r.store}.List(r.ctx(), objects.KeyRange{Published: true, Limit: all})
	if err != nil {
		t.Error(err)
	}
	if len(found) != all/2 || found[len(found)-1].Key != fmt.Sprintf("k%04d", all-2) {
		t.Errorf("%d publications are listed, want %d", len(found), all/2)
	}
	if err := r.store.Close(r.ctx(), objects.CloseOptions{}); err != nil {
		t.Fatal(err)
	}
	r.devs = devs
	r.reopen()
}
