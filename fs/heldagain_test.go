package fs

import (
	"bytes"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// open opens a file as the kernel does, for a user.
func (h *heldRig) open(ino uint64, uid uint32) *file {
	h.t.Helper()
	in := header(ino)
	in.Uid = uid
	var out fuse.OpenOut
	h.ok(h.on.Open(nil, &fuse.OpenIn{InHeader: in, Flags: unix.O_RDONLY}, &out))
	return &file{r: h.rig, ino: ino, fh: out.Fh}
}

// die forgets what the process has of its open files, and has the next one open them.
func (h *heldRig) die() {
	h.t.Helper()
	for fh, dead := range h.files.drain() {
		if dead.published {
			h.published.release(dead.file.Ino(), fh)
			dead.file.Abandon(h.t.Context())
			continue
		}
		h.closeFile(dead, fh)
	}
	h.asked.keepIn(make([]askedSlot, askedSlots))
	h.fleeting.mu.Lock()
	h.fleeting.inos, h.fleeting.held = map[metadata.Ino]fleet{}, nil
	h.fleeting.mu.Unlock()
	h.fleeting.count.Store(0)
	state := reopenState(h.t, h.on.state)
	must(h.t, h.on.state.close())
	h.on = &holding{filesystem: h.filesystem, state: state}
	h.on.restore(h.t.Context())
}

// TestRestoreMapped has a reader of publish/ that the kernel has pages for when the process dies: no other one opens the file
// beside it, and none of them gets EIO for a page.
func TestRestoreMapped(t *testing.T) {
	h := newHeldRig(t)
	keepIn(h.filesystem, h.on.state)
	h.published.wait = time.Millisecond
	data := kit.Bytes(7, 0, 3*page)
	ino := h.publish(h.root("sim0"), "t", data)
	f := h.open(ino, 0)
	got := f.readAt(page, 0)
	for round := range 2 {
		h.die()
		h.want(h.on.Open(nil, &fuse.OpenIn{InHeader: header(ino)}, &fuse.OpenOut{}), syscall.EBUSY)
		if again := f.readAt(page, 0); !bytes.Equal(again, data[:page]) {
			t.Error("a page that the kernel asks for again is another one")
		}
		got = append(got, f.readAt(page, uint64(1+round)*page)...)
	}
	if !bytes.Equal(got, data) {
		t.Errorf("different at %d", kit.FirstDiff(got, data))
	}
	h.die() // the reader has received it
	if again := f.readAt(len(data), 0); !bytes.Equal(again, data) {
		t.Error("pages of a file that was received are others")
	}
	h.ok(h.on.Flush(nil, &fuse.FlushIn{InHeader: header(ino), Fh: f.fh}))
	if h.lookup(publishIno, "t").NodeId != 0 {
		t.Error("the name of a file that was received is still there")
	}
	h.on.Release(nil, &fuse.ReleaseIn{InHeader: header(ino), Fh: f.fh})

	ino = h.publish(h.root("sim0"), "t", data)
	one, two := h.open(ino, 0), h.open(ino, 0)
	_, status := one.tryReadAt(nil, page, 0)
	h.want(status, syscall.EIO) // and is not recorded as one with pages
	h.die()
	_, status = one.direct(page, 0)
	h.ok(status)
	for _, f := range []*file{one, two, h.open(ino, 0)} {
		h.on.Release(nil, &fuse.ReleaseIn{InHeader: header(ino), Fh: f.fh})
	}
}

// TestNameOfTheReceivedBesideADeath asks for the attributes behind a name that the process has removed before it died, because the
// reader had received the file: the kernel, which caches the name, must look it up again.
func TestNameOfTheReceivedBesideADeath(t *testing.T) {
	h := newHeldRig(t)
	keepIn(h.filesystem, h.on.state)
	data := kit.Bytes(8, 0, 2*page)
	for _, late := range []bool{false, true} { // the process removes the name, or the next one
		ino := h.publish(h.root("sim0"), "t", data)
		f := h.open(ino, 0)
		f.readAt(len(data), 0)
		flush := func() { h.ok(h.on.Flush(nil, &fuse.FlushIn{InHeader: header(ino), Fh: f.fh})) }
		if late {
			h.die()
			flush()
		} else {
			flush()
			h.die()
		}
		h.want(h.on.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(ino)}, &fuse.AttrOut{}), syscall.ESTALE)
		h.on.Release(nil, &fuse.ReleaseIn{InHeader: header(ino), Fh: f.fh})
	}
}

// TestReceivedByRenameBesideADeath opens inodes that were found in publish/, and have been received by rename before the process
// died: the kernel must repeat the lookup of the name, and is told so once.
func TestReceivedByRenameBesideADeath(t *testing.T) {
	h := newHeldRig(t)
	keepIn(h.filesystem, h.on.state)
	sim0 := h.root("sim0")
	openBy := func(thread uint32, ino uint64) fuse.Status {
		in := header(ino)
		in.Pid = thread
		var out fuse.OpenOut
		status := h.on.Open(nil, &fuse.OpenIn{InHeader: in}, &out)
		if status == fuse.OK {
			h.on.Release(nil, &fuse.ReleaseIn{InHeader: in, Fh: out.Fh})
		}
		return status
	}
	for range 2 {
		ino := h.publish(sim0, "t", pattern(1000, 7))
		h.ok(openBy(1, ino))
		h.ok(h.rename(publishIno, "t", sim0, "mine"))
		h.die()
		h.want(openBy(1, ino), syscall.ESTALE)
		h.die()
		h.ok(openBy(1, ino))
		h.want(openBy(2, ino), syscall.ESTALE)
		h.ok(openBy(2, ino))
		in := header(sim0)
		h.ok(h.on.Unlink(nil, &in, "mine"))
	}
	for i := range mostLeft + 5 {
		h.on.state.leaves(metadata.Ino(1000 + i))
	}
	if left := h.on.state.left(); len(left) != mostLeft || slices.Contains(left, 1004) || !slices.Contains(left, 1005) {
		t.Errorf("recorded are %v", left)
	}
}

// TestLeftIsForgotten has an inode leave publish/ in a process that dies: the next one looks twice at it for a while, and not for ever, since the
// kernel, which knows it no more, forgets nothing. One that has a time to live is looked at as long as the kernel knows it.
func TestLeftIsForgotten(t *testing.T) {
	h := newHeldRig(t)
	keepIn(h.filesystem, h.on.state)
	sim0 := h.root("sim0")
	for _, name := range []string{"a", "b"} {
		h.publish(sim0, name, pattern(1000, 7))
		h.ok(h.rename(publishIno, name, sim0, name))
	}
	short := h.lookup(sim0, "b").NodeId
	h.fleeting.patience = time.Second
	h.die()
	if n := h.fleeting.count.Load(); n != 2 {
		t.Errorf("%d inodes are known to have left", n)
	}
	h.fleeting.add(metadata.Ino(short))
	kit.Eventually(t, time.Minute, func() error {
		if n := h.fleeting.count.Load(); n != 1 {
			return fmt.Errorf("%d inodes are known", n)
		}
		return nil
	})
	if _, ok := h.fleeting.get(metadata.Ino(short)); !ok {
		t.Error("the inode with a time to live is not known")
	}
}

// TestForgottenBefore has the kernel forget an inode that the process before gave it, which a process learns only after it has found
// the inode again and published its file: the name that was removed is not shown while the receiver has the file open. Nothing is known
// of the inode in the end.
func TestForgottenBefore(t *testing.T) {
	h := newHeldRig(t)
	keepIn(h.filesystem, h.on.state)
	h.fleeting.patience = time.Second
	sim0, data := h.root("sim0"), pattern(1000, 7)
	f := h.create(sim0, "a")
	f.write(data)
	f.release()
	h.die()
	h.tree.Forget(metadata.Ino(f.ino), 1) // of which a new process knows nothing
	h.lookup(sim0, "a")
	h.ok(h.rename(sim0, "a", publishIno, "a"))
	h.Forget(f.ino, 1)
	f = h.open(f.ino, 0)
	if got := f.readAll(len(data)); !bytes.Equal(got, data) {
		t.Errorf("different at %d", kit.FirstDiff(got, data))
	}
	f.flush()
	h.want(h.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(f.ino)}, &fuse.AttrOut{}), syscall.ESTALE)
	f.release()
	h.want(h.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(f.ino)}, &fuse.AttrOut{}), syscall.ENOENT)
	h.Forget(f.ino, 1)
	kit.Eventually(t, time.Minute, func() error {
		if n := h.fleeting.count.Load(); n != 0 {
			return fmt.Errorf("%d inodes are known", n)
		}
		return nil
	})
}

// TestForgottenBeforeItExpires has the kernel forget an inode with a time to live that the process before gave it: its name, once it is
// removed, leads to nothing while another process has the file open.
func TestForgottenBeforeItExpires(t *testing.T) {
	h := newHeldRig(t)
	keepIn(h.filesystem, h.on.state)
	h.fleeting.patience = time.Second
	sim0 := h.root("sim0")
	f := h.create(sim0, "a")
	h.ok(h.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: header(f.ino)}, "user.hmc.ttl", []byte("1000")))
	f.release()
	h.die()
	h.tree.Forget(metadata.Ino(f.ino), 1) // of which a new process knows nothing
	h.lookup(sim0, "a")
	h.Forget(f.ino, 1)
	f = h.open(f.ino, 0)
	dir := header(sim0)
	h.ok(h.Unlink(nil, &dir, "a")) // as once it has expired
	h.want(h.Open(nil, &fuse.OpenIn{InHeader: header(f.ino)}, &fuse.OpenOut{}), syscall.ESTALE)
	f.release()
	kit.Eventually(t, time.Minute, func() error {
		if n := h.fleeting.count.Load(); n != 0 {
			return fmt.Errorf("%d inodes are known", n)
		}
		return nil
	})
}

// TestRestoreEvents has a user's stream of events continue: with those that the user may see.
func TestRestoreEvents(t *testing.T) {
	h := newHeldRig(t)
	sim0 := h.root("sim0")
	streams := []*file{h.open(uint64(eventsIno), 4711), h.open(uint64(eventsIno), 0)}
	h.die()
	for _, name := range []string{"secret", "known"} {
		f := h.create(sim0, name)
		f.release()
		if name == "secret" {
			in := setAttr(f.ino, fuse.FATTR_MODE)
			in.Mode = 0o600
			h.ok(h.SetAttr(nil, in, &fuse.AttrOut{}))
		}
		h.ok(h.rename(sim0, name, publishIno, name))
	}
	if e := streams[0].linesOf(1, 4096)[0]; e.Key != "known" {
		t.Errorf("a stranger hears of %q", e.Key)
	}
	if e := streams[1].linesOf(1, 4096)[0]; e.Key != "secret" {
		t.Errorf("root hears of %q first", e.Key)
	}
	h.streams.mu.Lock()
	n := h.streams.of[4711]
	h.streams.mu.Unlock()
	if n != 1 {
		t.Errorf("%d streams are counted for the user, want 1", n)
	}
}

// TestRestoreUnbacked opens files of the host tier that the kernel has open without passthrough: others are opened as these are.
func TestRestoreUnbacked(t *testing.T) {
	dev, err := devices.NewRegistry(host.NewDriver(host.Options{Dir: t.TempDir(), NoMount: true})).Open(t.Context(), "host,size=64MiB")
	must(t, err)
	tier, ok := dev.(*host.Device)
	if !ok {
		t.Fatalf("the host is a %T", dev)
	}
	t.Cleanup(func() { must(t, tier.Destroy()) })
	h := &heldRig{rig: newRigOn(t, dev)}
	h.on = &holding{filesystem: h.filesystem, state: newTestState(t)}
	t.Cleanup(func() { must(t, h.on.state.close()) })
	kernel := &fakeRegistrar{held: map[int32]bool{}}
	h.backings.kernel = kernel
	dir := h.root("host")
	through := func(ino uint64) bool {
		t.Helper()
		var out fuse.OpenOut
		h.ok(h.Open(nil, &fuse.OpenIn{InHeader: header(ino)}, &out))
		h.Release(nil, &fuse.ReleaseIn{InHeader: header(ino), Fh: out.Fh})
		return out.OpenFlags&fuse.FOPEN_PASSTHROUGH != 0
	}
	data := kit.Bytes(3, 0, page)
	reader := h.open(h.publish(dir, "t", data), 0)
	h.ok(h.rename(publishIno, "t", dir, "received"))
	refused := h.create(dir, "refused")
	refused.release()
	kernel.refuse = syscall.EBUSY
	plain := h.open(refused.ino, 0)
	kernel.refuse = nil
	for _, f := range []*file{reader, plain} {
		h.die()
		if through(f.ino) {
			t.Errorf("inode %d is served in two ways", f.ino)
		}
		h.on.Release(nil, &fuse.ReleaseIn{InHeader: header(f.ino), Fh: f.fh})
		if !through(f.ino) {
			t.Errorf("inode %d is not served by the kernel when nothing has it open", f.ino)
		}
	}
	h.files.drain()
	if len(kernel.held) > 0 {
		t.Errorf("%d files are registered", len(kernel.held))
	}
}

// TestStoresBesideCallsOfTheNext has a page of a map that was stored to when the process dies, and a write to that page that
// the next one is asked for before the kernel has dropped its pages: both take effect.
func TestStoresBesideCallsOfTheNext(t *testing.T) {
	h := newHeldRig(t)
	var out fuse.CreateOut
	h.ok(h.on.Create(nil, &fuse.CreateIn{InHeader: header(h.root("sim0")), Flags: unix.O_RDWR, Mode: unix.S_IFREG | 0o644}, "a", &out))
	f := &file{r: h.rig, ino: out.NodeId, fh: out.Fh}
	f.write(pattern(2*page, 1))
	stored := f.readAt(page, page)
	stored[7] ^= 0xff
	h.die()
	h.kernel.refault = func() {
		h.kernel.refault = nil
		f.writeBack(bytes.Clone(stored), page)
	}
	want := bytes.Clone(stored)
	copy(want[100:], pattern(50, 77))
	f.writeAt(pattern(50, 77), page+100)
	if h.kernel.refault != nil {
		t.Error("the kernel was not told to drop its page")
	}
	if got := f.readAt(page, page); !bytes.Equal(got, want) {
		t.Errorf("different at %d", kit.FirstDiff(got, want))
	}
	h.on.dropPages()
	h.die() // which drops no page that this process knows of
	h.on.dropPages()
	h.kernel.pages = nil
	f.writeAt(pattern(50, 78), 100)
	if len(h.kernel.pages) > 0 {
		t.Error("the kernel is told to drop pages that it does not have")
	}
}

// TestReadDirKeysContinues lists keys in pieces, each by another process.
func TestReadDirKeysContinues(t *testing.T) {
	h := newHeldRig(t)
	sim0 := h.root("sim0")
	const keys = pageEntries + 50
	var want []string
	for i := range keys {
		f := h.create(sim0, fmt.Sprintf("f%d", i))
		in := fuse.SetXAttrIn{InHeader: header(f.ino)}
		want = append(want, fmt.Sprintf("key%04d", i))
		h.ok(h.SetXAttr(nil, &in, keyXattr, []byte(want[i])))
		f.release()
	}
	var out fuse.OpenOut
	h.ok(h.on.OpenDir(nil, &fuse.OpenIn{InHeader: header(uint64(keysIno))}, &out))
	var got []string
	for at := uint64(dotsEnd); ; {
		more := h.entriesAt(uint64(keysIno), out.Fh, at, 4096)
		if len(more) == 0 || len(got) > keys {
			break
		}
		for _, e := range more {
			got, at = append(got, e.Name), e.Off
		}
		h.dirs.drain()
		h.die()
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
	if past := h.entriesAt(uint64(keysIno), out.Fh, 1<<40, 4096); len(past) > 0 {
		t.Errorf("behind the end is %q", past[0].Name)
	}
}
