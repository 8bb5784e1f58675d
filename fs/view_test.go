package fs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// array makes a .npy file of n bytes.
func array(n int, seed byte) []byte {
	x := tensors.Tensor{Shape: []uint64{uint64(n)}}
	x.Type, _ = tensors.TypeNamed("uint8")
	return append(x.Header(), pattern(n, seed)...)
}

// npy makes a file of n bytes after a header.
func (r *rig) npy(dir uint64, name string, n int) {
	r.t.Helper()
	f := r.create(dir, name)
	f.write(array(n, 7))
	f.release()
}

// look finds a name that may be missing; 0 means that it is.
func (r *rig) look(parent uint64, name string) (uint64, fuse.Status) {
	var out fuse.EntryOut
	h := header(parent)
	status := r.Lookup(nil, &h, name, &out)
	return out.NodeId, status
}

// wantAt reads a part of a file and compares it with that part of content.
func (f *file) wantAt(content []byte, off, size int) {
	f.r.t.Helper()
	from := min(off, len(content))
	if got := f.readAt(size, uint64(off)); string(got) != string(content[from:min(from+size, len(content))]) {
		f.r.t.Errorf("%d bytes at %d are wrong", size, off)
	}
}

func TestViewReads(t *testing.T) {
	for _, device := range []string{"sim0", "sim1"} {
		t.Run(device, func(t *testing.T) {
			r := newRig(t)
			dir := r.root(device)
			const n = 3<<20 + 77
			r.npy(dir, "a.npy", n)
			want := array(n, 7)
			view := r.lookup(dir, "a.npy.tensors")
			if view.Mode != syscall.S_IFDIR|0o555 || view.EntryValid != 0 || view.AttrValid != 0 {
				t.Errorf("view: %+v", view)
			}
			entry := r.lookup(view.NodeId, "a.npy")
			if entry.Mode != syscall.S_IFREG|0o644 || entry.Size != uint64(len(want)) {
				t.Errorf("tensor: %+v", entry)
			}
			f, out := r.openFile(entry.NodeId, syscall.O_RDONLY)
			defer f.release()
			if out.OpenFlags&fuse.FOPEN_DIRECT_IO == 0 {
				t.Errorf("opened with %x", out.OpenFlags)
			}
			for _, off := range []int{0, 1, 127, 128, 129, 1 << 20, 1<<20 + 5, len(want) - 1, len(want), len(want) + 9} {
				for _, size := range []int{1, 128, 5000, 1 << 20} {
					f.wantAt(want, off, size)
				}
			}
			for off := 0; off < len(want); off += 1 << 20 { // sequentially, so that it is read ahead
				f.wantAt(want, off, 1<<20)
			}
			if got := r.listAll(view.NodeId); !slices.Equal(got, []string{".", "..", "a.npy"}) {
				t.Errorf("view lists %q", got)
			}
		})
	}
}

// TestViewNodes looks thousands of nodes up and forgets them.
func TestViewNodes(t *testing.T) {
	r := newRig(t)
	dir := r.root("sim0")
	const files = 3000
	held := map[uint64]uint64{}
	for round := range 3 {
		for i := range files {
			name := fmt.Sprintf("%d.npy", i)
			if round == 0 {
				r.npy(dir, name, 8)
			}
			for _, path := range []string{name + ".tensors", name + ".tensors/" + name} {
				parent, last := dir, path
				if view, file, ok := strings.Cut(path, "/"); ok {
					parent, last = r.lookup(dir, view).NodeId, file
					held[parent]++
				}
				id := r.lookup(parent, last).NodeId
				held[id]++
				if !isView(metadata.Ino(id)) || isKey(metadata.Ino(id)) || !isReserved(metadata.Ino(id)) {
					t.Fatalf("node %d of %s", id, path)
				}
			}
		}
	}
	if len(held) != 2*files || r.views.len() != 2*files {
		t.Fatalf("%d numbers and %d nodes of %d", len(held), r.views.len(), 2*files)
	}
	for id, n := range held {
		r.Forget(id, n-1)
		if a := r.stat(id); a.Ino != id {
			t.Fatalf("node %d is forgotten too early: %+v", id, a)
		}
		r.Forget(id, 1)
		var out fuse.AttrOut
		r.want(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(id)}, &out), syscall.ESTALE)
	}
	if n := r.views.len(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}

// TestViewNumbersMeet puts another node at the number that a node would get.
func TestViewNumbersMeet(t *testing.T) {
	r := newRig(t)
	first := r.views.number(5000, "a.npy", "", nil)
	other := &viewNode{id: first, file: 5001, name: "b.npy", refs: 1}
	r.views.mu.Lock()
	r.views.nodes[first] = other
	r.views.mu.Unlock()
	r.store.Reference(5001, 1)
	n := r.views.enter(5000, "a.npy", "", nil)
	if n == other || n.id != viewBit|(first+1)&(viewBit-1) || r.views.enter(5000, "a.npy", "", nil) != n {
		t.Errorf("node %+v beside %+v", n, other)
	}
	r.views.forget(first, 1)
	r.views.forget(n.id, 2)
	if r.views.len() != 0 {
		t.Error("nodes are left")
	}
}

// TestViewRefuses tries to change views in every way that the kernel offers.
func TestViewRefuses(t *testing.T) {
	r := newRig(t)
	dir := r.root("sim0")
	r.npy(dir, "a.npy", 100)
	view := r.lookup(dir, "a.npy.tensors").NodeId
	tensor := r.lookup(view, "a.npy").NodeId
	f, _ := r.openFile(tensor, syscall.O_RDONLY)
	defer f.release()
	at, below, on := header(dir), header(view), header(tensor)
	var entry fuse.EntryOut
	var attr fuse.AttrOut
	for what, status := range map[string]fuse.Status{
		"mkdir":       r.Mkdir(nil, &fuse.MkdirIn{InHeader: below}, "d", &entry),
		"mknod":       r.Mknod(nil, &fuse.MknodIn{InHeader: below, Mode: syscall.S_IFREG}, "f", &entry),
		"create":      r.Create(nil, &fuse.CreateIn{InHeader: below}, "f", &fuse.CreateOut{}),
		"symlink":     r.Symlink(nil, &below, "x", "l", &entry),
		"link in":     r.Link(nil, &fuse.LinkIn{InHeader: below, Oldnodeid: dir}, "l", &entry),
		"link out":    r.Link(nil, &fuse.LinkIn{InHeader: at, Oldnodeid: tensor}, "l", &entry),
		"unlink":      r.Unlink(nil, &below, "a.npy"),
		"rmdir":       r.Rmdir(nil, &below, "a.npy"),
		"rmdir of it": r.Rmdir(nil, &at, "a.npy.tensors"),
		"rename in":   r.Rename(nil, &fuse.RenameIn{InHeader: at, Newdir: view}, "a.npy", "b"),
		"rename out":  r.Rename(nil, &fuse.RenameIn{InHeader: below, Newdir: dir}, "a.npy", "b"),
		"rename":      r.Rename(nil, &fuse.RenameIn{InHeader: at, Newdir: dir}, "a.npy.tensors", "b"),
		"setattr":     r.SetAttr(nil, &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: on, Valid: fuse.FATTR_MODE}}, &attr),
		"setxattr":    r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: on}, "user.a", nil),
		"removexattr": r.RemoveXAttr(nil, &on, "user.hmc.dtype"),
		"open":        r.Open(nil, &fuse.OpenIn{InHeader: on, Flags: syscall.O_RDWR}, &fuse.OpenOut{}),
		"open trunc":  r.Open(nil, &fuse.OpenIn{InHeader: on, Flags: syscall.O_TRUNC}, &fuse.OpenOut{}),
		"fallocate":   r.Fallocate(nil, &fuse.FallocateIn{InHeader: on, Fh: f.fh, Length: 1}),
	} {
		if status != fuse.EROFS {
			t.Errorf("%s: %v", what, status)
		}
	}
	_, status := r.Writev(nil, &fuse.WriteIn{InHeader: on, Fh: f.fh}, [][]byte{{1}})
	r.want(status, syscall.EROFS)
	_, status = r.look(tensor, "x")
	r.want(status, syscall.ENOTDIR)
	r.want(r.Rmdir(nil, &at, "no.npy.tensors"), syscall.ENOENT)
}

// TestViewsInListings expects each view to be listed once, at whatever offsets the listing is
// split.
func TestViewsInListings(t *testing.T) {
	r := newRig(t)
	r.opts.ListViews = true
	dir := r.root("sim0")
	want := map[string]bool{".": true, "..": true}
	for i := range pageEntries + 90 {
		name := fmt.Sprintf("%d.txt", i)
		if i%2 == 0 {
			name = fmt.Sprintf("%d.safetensors", i)
			want[name+".tensors"] = true
		}
		if i%10 == 0 { // a real file of that name
			var out fuse.EntryOut
			r.ok(r.Mkdir(nil, &fuse.MkdirIn{InHeader: header(dir), Mode: 0o755}, name+".tensors", &out))
		}
		r.create(dir, name).release()
		want[name] = true
	}
	for _, size := range []int{150, 1000, 4096, 1 << 20} {
		seen := map[string]bool{}
		for off := uint64(0); ; {
			fh := r.openDir(dir) // a new handle each time, so that no page is reused
			entries := r.entriesAt(dir, fh, off, size)
			r.ReleaseDir(&fuse.ReleaseIn{Fh: fh})
			if len(entries) == 0 {
				break
			}
			for _, e := range entries {
				if seen[e.Name] || !want[e.Name] || e.Off <= off {
					t.Fatalf("%q at %d: listed before, or not to be", e.Name, e.Off)
				}
				seen[e.Name], off = true, e.Off
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%d names in pieces of %d, want %d", len(seen), size, len(want))
		}
	}
	if got := r.listAll(dir); len(got) != len(want) {
		t.Errorf("%d names in one go, want %d", len(got), len(want))
	}
}

// TestViewPagesGo expects the pages of an open tensor to be dropped when its file is written,
// and only then.
func TestViewPagesGo(t *testing.T) {
	r := newRig(t)
	dir := r.root("sim0")
	r.npy(dir, "a.npy", 100)
	tensor := r.lookup(r.lookup(dir, "a.npy.tensors").NodeId, "a.npy").NodeId
	f, _ := r.openFile(r.lookup(dir, "a.npy").NodeId, syscall.O_RDWR)
	f.writeAt([]byte{1}, 150)
	if len(r.kernel.pages) != 0 {
		t.Errorf("pages of %v are dropped, and nothing is open", r.kernel.pages)
	}
	v, _ := r.openFile(tensor, syscall.O_RDONLY)
	f.writeAt([]byte{2}, 151)
	if !slices.Equal(r.kernel.pages, []metadata.Ino{metadata.Ino(tensor)}) {
		t.Errorf("pages of %v are dropped, want those of %d", r.kernel.pages, tensor)
	}
	if got := v.readAt(2, 150); got[0] != 1 || got[1] != 2 {
		t.Errorf("read %v", got)
	}
	f.writeAt([]byte("no header"), 0)
	_, status := v.tryReadAt(nil, 10, 0)
	r.want(status, syscall.EIO)
	f.write(array(99, 7))
	_, status = v.tryReadAt(nil, 10, 0)
	r.want(status, syscall.ESTALE)
	v.release()
	f.release()
	r.views.mu.Lock()
	defer r.views.mu.Unlock()
	if r.views.opens.Load() != 0 || len(r.views.open) != 0 {
		t.Errorf("%d open tensors are left", r.views.opens.Load())
	}
}

// meddler is a tensor whose file changes just before each read.
type meddler struct {
	*viewFile
	meddle func()
}

func (m meddler) Peek(ctx context.Context, p []byte, off uint64) (int, error) {
	m.meddle()
	return m.viewFile.Peek(ctx, p, off)
}

func (m meddler) Views(context.Context, uint64, int) (objects.Views, error) {
	m.meddle()
	return objects.Views{}, devices.ErrUnsupported
}

// meddled opens the tensor of a file of n bytes and calls fn with the file before each read of
// it.
func (r *rig) meddled(name string, n int, fn func(*file)) *file {
	r.t.Helper()
	dir := r.root("sim0")
	r.npy(dir, name, n)
	target, _ := r.openFile(r.lookup(dir, name).NodeId, syscall.O_RDWR)
	v, _ := r.openFile(r.lookup(r.lookup(dir, name+".tensors").NodeId, name).NodeId, syscall.O_RDONLY)
	h, _ := r.files.get(v.fh)
	m := meddler{viewFile: h.view, meddle: func() { fn(target) }}
	h.src, h.ahead.src = m, m
	r.t.Cleanup(func() {
		v.release()
		target.release()
	})
	return v
}

// TestViewReadBesideChanges changes files between reading the header and reading the bytes.
func TestViewReadBesideChanges(t *testing.T) {
	r := newRig(t)
	once := false
	v := r.meddled("moved.npy", 1000, func(f *file) {
		if !once {
			once = true
			f.write(array(990, 9)) // the same header size, and data where data was before
		}
	})
	if p, status := v.tryReadAt(nil, 100, 200); status != fuse.Status(syscall.ESTALE) {
		t.Errorf("a tensor that was replaced reads as %x, %v", p, status)
	}
	count := byte(0)
	v = r.meddled("live.npy", 1000, func(f *file) { // it changes all the time
		count++
		f.writeAt([]byte{count, count, count, count}, 300)
	})
	got := v.readAt(4, 300)
	if count < steadyTries || got[0] != count || got[3] != count {
		t.Errorf("read %v after %d changes", got, count)
	}
}
