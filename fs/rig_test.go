package fs

import (
	"bytes"
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap/zaptest"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// rig is a filesystem without a mount, over a store of two simulated
// devices: sim0 can't be mapped, sim1 can.
type rig struct {
	*filesystem
	t      *testing.T
	kernel recorder
}

// recorder is a kernel that records its notifications.
type recorder struct {
	entries []string
	inodes  []metadata.Ino
	pages   []metadata.Ino
	// refault, if not nil, simulates the kernel's actions while it drops a range.
	refault func()
}

func (r *recorder) InvalidateEntry(_ metadata.Ino, name string) {
	r.entries = append(r.entries, name)
}

func (r *recorder) InvalidateInode(ino metadata.Ino) bool {
	r.inodes = append(r.inodes, ino)
	return true
}

func (r *recorder) InvalidatePages(ino metadata.Ino) { r.pages = append(r.pages, ino) }

func (r *recorder) InvalidateRange(ino metadata.Ino, _, _ uint64) {
	r.pages = append(r.pages, ino)
	if r.refault != nil {
		r.refault()
	}
}

const (
	testRequest   = 1 << 20
	testReadAhead = 4 << 20
)

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t,
		sim.New(0, sim.Params{Size: 64 * devices.MiB}),
		sim.New(1, sim.Params{Size: 64 * devices.MiB, Mapped: true}),
	)
}

func newRigOn(t *testing.T, devs ...devices.Device) *rig {
	t.Helper()
	ctx := context.Background()
	meta, err := metadata.Open(ctx, memkv.New(), metadata.Options{})
	must(t, err)
	engine, err := transport.New(transport.Options{})
	must(t, err)
	store, err := objects.Open(ctx, objects.Options{Meta: meta, Engine: engine, Devices: devs})
	must(t, err)
	o := Options{
		Store: store, Engine: engine, MountPoint: "/", ReadAhead: testReadAhead,
		MaxWrite: testRequest, Version: "v1.2.3", Logger: zaptest.NewLogger(t),
	}
	o.EnsureDefaults()
	must(t, o.Validate())
	r := &rig{filesystem: newFilesystem(o), t: t}
	r.filesystem.kernel = &r.kernel
	t.Cleanup(func() {
		r.closeHandles() //nolint:contextcheck // closing handles must not depend on a context
		if n := r.ahead.used.Load(); n != 0 {
			t.Errorf("%d bytes of read-ahead are still held", n)
		}
		if n := engine.Stats().PinnedInUse; n != 0 {
			t.Errorf("%v of pinned slots are still held", n)
		}
		must(t, store.Close(ctx, objects.CloseOptions{}))
		must(t, engine.Close())
		for _, d := range devs {
			must(t, d.Close())
		}
		must(t, meta.Close())
	})
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ok fails the test unless the request succeeded.
func (r *rig) ok(status fuse.Status) {
	r.t.Helper()
	if status != fuse.OK {
		r.t.Fatalf("request failed: %v", status)
	}
}

// want fails the test unless the request was answered with errno.
func (r *rig) want(got fuse.Status, errno syscall.Errno) {
	r.t.Helper()
	if got != fuse.Status(errno) {
		r.t.Errorf("answered %v, want %v", got, fuse.Status(errno))
	}
}

func header(ino uint64) fuse.InHeader { return fuse.InHeader{NodeId: ino} }

// lookup finds a name; inode 0 means that it does not exist.
func (r *rig) lookup(parent uint64, name string) fuse.EntryOut {
	r.t.Helper()
	var out fuse.EntryOut
	h := header(parent)
	r.ok(r.Lookup(nil, &h, name, &out))
	return out
}

// root returns the directory of a device.
func (r *rig) root(device string) uint64 {
	r.t.Helper()
	ino := r.lookup(uint64(metadata.RootIno), device).NodeId
	if ino == 0 {
		r.t.Fatalf("no device %s", device)
	}
	return ino
}

// file is an open file of a test.
type file struct {
	r       *rig
	ino, fh uint64
}

func (r *rig) create(parent uint64, name string) *file {
	r.t.Helper()
	var out fuse.CreateOut
	in := fuse.CreateIn{InHeader: header(parent), Flags: syscall.O_RDWR, Mode: syscall.S_IFREG | 0o644}
	r.ok(r.Create(nil, &in, name, &out))
	return &file{r: r, ino: out.NodeId, fh: out.Fh}
}

func (r *rig) openFile(ino uint64, flags uint32) (*file, fuse.OpenOut) {
	r.t.Helper()
	var out fuse.OpenOut
	r.ok(r.Open(nil, &fuse.OpenIn{InHeader: header(ino), Flags: flags}, &out))
	return &file{r: r, ino: ino, fh: out.Fh}, out
}

func (f *file) writeAt(p []byte, off uint64) {
	f.r.t.Helper()
	in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Offset: off, Size: uint32(len(p))}
	n, status := f.r.Writev(nil, &in, [][]byte{p})
	f.r.ok(status)
	if int(n) != len(p) {
		f.r.t.Fatalf("wrote %d of %d bytes", n, len(p))
	}
}

// write writes any length in requests, from the start of the file.
func (f *file) write(p []byte) {
	f.r.t.Helper()
	for off := uint64(0); len(p) > 0; {
		n := min(len(p), testRequest)
		f.writeAt(p[:n], off)
		p, off = p[n:], off+uint64(n)
	}
}

// readAt reads as the kernel does: it copies the bytes, then calls Done.
func (f *file) readAt(n int, off uint64) []byte {
	f.r.t.Helper()
	p, status := f.tryReadAt(nil, n, off)
	f.r.ok(status)
	return p
}

func (f *file) tryReadAt(cancel <-chan struct{}, n int, off uint64) ([]byte, fuse.Status) {
	in := fuse.ReadIn{InHeader: header(f.ino), Fh: f.fh, Offset: off, Size: uint32(n)}
	buf := make([]byte, n)
	result, status := f.r.Read(cancel, &in, buf)
	if status != fuse.OK {
		return nil, status
	}
	if result.Size() == 0 {
		return nil, fuse.OK // go-fuse does not call Done in that case
	}
	var p []byte
	if s, ok := result.(interface {
		Slices() ([][]byte, fuse.Status)
	}); ok {
		slices, _ := s.Slices()
		p = bytes.Join(slices, nil)
	} else {
		data, _ := result.Bytes(buf)
		p = bytes.Clone(data)
	}
	result.Done()
	return p, fuse.OK
}

func (f *file) release() {
	f.r.Release(nil, &fuse.ReleaseIn{InHeader: header(f.ino), Fh: f.fh})
}

// stat requests the attributes.
func (r *rig) stat(ino uint64) fuse.AttrOut {
	r.t.Helper()
	var out fuse.AttrOut
	r.ok(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(ino)}, &out))
	return out
}

// pattern makes n bytes that differ from offset to offset.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ seed
	}
	return p
}
