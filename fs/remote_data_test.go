package fs

import (
	"bytes"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRemoteBytes writes and reads a file of another node, sequentially and at random.
func TestRemoteBytes(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	for _, device := range []string{"sim0", "host"} {
		f := r.create(r.dir(nodesName, "b", device), "f")
		want := pattern(6<<20+4711, 7)
		f.write(want)
		ino := r.there("b", device, "f").Ino
		if !bytes.Equal(r.Node("b").Content(ino), want) {
			t.Errorf("%s: other bytes at the owner", device)
		}
		var got []byte
		for off := 0; off < len(want); off += testRequest {
			got = append(got, f.readAt(testRequest, uint64(off))...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes come back", device)
		}
		for range 50 {
			off := rand.IntN(len(want) + 100)
			n := rand.IntN(300_000)
			if p := f.readAt(n, uint64(off)); !bytes.Equal(p, want[min(off, len(want)):min(off+n, len(want))]) {
				t.Fatalf("%s: %d bytes at %d are others", device, n, off)
			}
		}
		copy(want[1_000_000:], pattern(70_000, 9))
		f.writeAt(want[1_000_000:1_070_000], 1_000_000)
		if p := f.readAt(testRequest, 900_000); !bytes.Equal(p, want[900_000:900_000+testRequest]) {
			t.Errorf("%s: what was written over does not come back", device)
		}
		f.release()
	}
}

// TestRemoteReadAhead: a change by the owner is visible even if the range was read ahead.
func TestRemoteReadAhead(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	b := r.Node("b")
	old, fresh := pattern(8<<20, 1), pattern(8<<20, 2)
	ino := b.File("sim0", "f", old)
	f, _ := r.openFile(r.dir(nodesName, "b", "sim0", "f"), uint32(syscall.O_RDONLY))
	defer f.release()
	for off := range uint64(3) {
		if !bytes.Equal(f.readAt(testRequest, off<<20), old[off<<20:][:testRequest]) {
			t.Fatalf("other bytes at %d MiB", off)
		}
	}
	own, err := b.Store.OpenFile(t.Context(), ino)
	must(t, err)
	_, err = own.WriteAt(t.Context(), fresh, objects.Write{})
	must(t, err)
	must(t, own.Close(t.Context()))
	kit.Eventually(t, 10*time.Second, func() bool {
		return bytes.Equal(f.readAt(testRequest, 3<<20), fresh[3<<20:4<<20])
	})
	if !bytes.Equal(f.readAt(testRequest, 4<<20), fresh[4<<20:5<<20]) {
		t.Error("older bytes after newer ones")
	}
}

// TestRemoteAppend: two concurrent appenders don't overwrite each other.
func TestRemoteAppend(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	one := r.create(r.dir(nodesName, "b", "sim0"), "f")
	defer one.release()
	two, _ := r.openFile(one.ino, rdwr)
	defer two.release()
	for i, f := range []*file{one, two, one} {
		in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Size: 3, Flags: unix.O_APPEND}
		_, status := r.Write(nil, &in, []byte{byte(i), byte(i), byte(i)})
		r.ok(status)
	}
	if got := one.readAt(100, 0); !bytes.Equal(got, []byte{0, 0, 0, 1, 1, 1, 2, 2, 2}) {
		t.Errorf("appended %v", got)
	}
}

// TestRemoteRanges allocates, frees, and finds holes.
func TestRemoteRanges(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	f := r.create(r.dir(nodesName, "b", "sim0"), "f")
	defer f.release()
	h := header(f.ino)
	r.ok(r.Fallocate(nil, &fuse.FallocateIn{InHeader: h, Fh: f.fh, Length: 3 << 20}))
	if a := r.stat(f.ino); a.Size != 3<<20 {
		t.Errorf("%d bytes after fallocate", a.Size)
	}
	f.write(pattern(3<<20, 5))
	r.ok(r.Fallocate(nil, &fuse.FallocateIn{InHeader: h, Fh: f.fh, Offset: 1 << 20, Length: 1 << 20, Mode: unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE}))
	if p := f.readAt(testRequest, 1<<20); !bytes.Equal(p, make([]byte, testRequest)) {
		t.Error("a hole has bytes")
	}
	var out fuse.LseekOut
	r.ok(r.Lseek(nil, &fuse.LseekIn{InHeader: h, Fh: f.fh, Whence: unix.SEEK_HOLE}, &out))
	if out.Offset != 1<<20 {
		t.Errorf("the hole is at %d", out.Offset)
	}
	r.ok(r.Lseek(nil, &fuse.LseekIn{InHeader: h, Fh: f.fh, Offset: out.Offset, Whence: unix.SEEK_DATA}, &out))
	if out.Offset != 2<<20 {
		t.Errorf("data is at %d", out.Offset)
	}
	r.want(r.Lseek(nil, &fuse.LseekIn{InHeader: h, Fh: f.fh, Offset: 5 << 20, Whence: unix.SEEK_DATA}, &out), syscall.ENXIO)
	r.ok(r.Fsync(nil, &fuse.FsyncIn{InHeader: h, Fh: f.fh}))
}

// TestRemoteCopies copies between any two of: a local file, a file of b, another file of b, a
// file of c.
func TestRemoteCopies(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	want := pattern(5<<20+333, 3)
	dirs := map[string]uint64{
		"own": r.dir("sim0"), "own host": r.dir("host"),
		"b": r.dir(nodesName, "b", "sim0"), "b host": r.dir(nodesName, "b", "host"), "c": r.dir(nodesName, "c", "sim0"),
	}
	sources := map[string]*file{}
	for at, dir := range dirs {
		sources[at] = r.create(dir, "src")
		sources[at].write(want)
	}
	for from, src := range sources {
		for to, dir := range dirs {
			dst := r.create(dir, "dst")
			for off := uint64(100); off < uint64(len(want)); {
				n, status := r.CopyFileRange(nil, &fuse.CopyFileRangeIn{
					InHeader: header(src.ino), FhIn: src.fh, OffIn: off,
					NodeIdOut: dst.ino, FhOut: dst.fh, OffOut: off - 100, Len: 1 << 40,
				})
				if r.ok(status); n == 0 {
					t.Fatalf("%s to %s: nothing copied at %d", from, to, off)
				}
				off += uint64(n)
			}
			if got := dst.readAll(len(want)); !bytes.Equal(got, want[100:]) {
				t.Errorf("%s to %s: other bytes", from, to)
			}
			dst.release()
			h := header(dir)
			r.ok(r.Unlink(nil, &h, "dst"))
		}
	}
	for _, src := range sources {
		src.release()
	}
}

// readAll reads up to n bytes in requests.
func (f *file) readAll(n int) (all []byte) {
	for off := 0; off < n; off += testRequest {
		all = append(all, f.readAt(testRequest, uint64(off))...)
	}
	return all
}

// TestRemoteCreateAsksOnce creates and opens a file of another node with one request.
func TestRemoteCreateAsksOnce(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	sim0 := r.dir(nodesName, "b", "sim0")
	in := fuse.CreateIn{InHeader: header(sim0), Flags: rdwr, Mode: syscall.S_IFREG | 0o400}
	var out fuse.CreateOut
	before := r.opts.Cluster.Stats().Questions
	r.ok(r.Create(nil, &in, "f", &out))
	if asked := r.opts.Cluster.Stats().Questions - before; asked != 1 {
		t.Errorf("%d questions", asked)
	}
	f := &file{r: r.rig, ino: out.NodeId, fh: out.Fh}
	content := kit.Bytes(3, 0, 5000)
	f.write(content)
	f.release()
	a := r.there("b", "sim0", "f")
	if got := r.Node("b").Content(a.Ino); !bytes.Equal(got, content) || a.Mode.Perm() != 0o400 {
		t.Errorf("mode %o, content differs at %d", a.Mode, kit.FirstDiff(got, content))
	}
}

// TestRemoteCreateRace: O_CREAT without O_EXCL opens an existing file of the owner, and with
// O_EXCL it fails.
func TestRemoteCreateRace(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	sim0 := r.dir(nodesName, "b", "sim0")
	ino := r.Node("b").File("sim0", "f", []byte("there"))
	in := fuse.CreateIn{InHeader: header(sim0), Flags: rdwr, Mode: syscall.S_IFREG | 0o600}
	var out fuse.CreateOut
	r.ok(r.Create(nil, &in, "f", &out))
	f := &file{r: r.rig, ino: out.NodeId, fh: out.Fh}
	if got := f.readAt(10, 0); string(got) != "there" || metadata.Ino(f.ino)&(cluster.MaxInos-1) != ino {
		t.Errorf("%q in inode %#x", got, f.ino)
	}
	f.release()
	in.Flags |= syscall.O_EXCL
	r.want(r.Create(nil, &in, "f", &out), syscall.EEXIST)
	b := r.Node("b")
	_, err := b.Store.Create(t.Context(), b.Dir("sim0"), "d", metadata.Node{Mode: metadata.TypeDir | 0o755})
	must(t, err)
	in.Flags = rdwr
	r.want(r.Create(nil, &in, "d", &out), syscall.EEXIST)
	// A process that creates a file with a read-only mode can still write it.
	in.Mode = syscall.S_IFREG | 0o444
	r.ok(r.Create(nil, &in, "readonly", &out))
	f = &file{r: r.rig, ino: out.NodeId, fh: out.Fh}
	f.write([]byte("written"))
	f.release()
}

// TestRemoteUnlinked: an open file exists until it is closed, and a removed one is stale, so
// that the kernel repeats the lookup of its name.
func TestRemoteUnlinked(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	sim0 := r.dir(nodesName, "b", "sim0")
	f := r.create(sim0, "f")
	f.write([]byte("still there"))
	h := header(sim0)
	r.ok(r.Unlink(nil, &h, "f"))
	if got := f.readAt(100, 0); string(got) != "still there" {
		t.Errorf("%q in a file without a name", got)
	}
	if a := r.stat(f.ino); a.Nlink != 0 || a.Size != 11 {
		t.Errorf("%d links, %d bytes", a.Nlink, a.Size)
	}
	f.release()
	kit.Eventually(t, 10*time.Second, func() bool {
		var out fuse.AttrOut
		return r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(f.ino)}, &out) == errStale
	})
	status := r.tryOpen(f.ino, rdwr)
	r.want(status, syscall.ESTALE)
}
