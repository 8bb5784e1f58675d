package fs

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestNodeAway: a node that does not answer still has its name; everything else fails, and
// works again once the node is back, including open files.
func TestNodeAway(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	b, sim0 := r.dir(nodesName, "b"), r.dir(nodesName, "b", "sim0")
	f := r.create(sim0, "f")
	f.write([]byte("before"))
	r.Node("b").Leave()

	if got := r.listAll(r.dir(nodesName)); !slices.Equal(got, []string{".", "..", "b", "c"}) {
		t.Errorf("nodes/ holds %v", got)
	}
	if again := r.dir(nodesName, "b"); r.stat(again).Mode != syscall.S_IFDIR|0o555 {
		t.Error("the node has gone with its answers")
	}
	r.fails(f, b, sim0)
	other := r.create(r.dir(nodesName, "c", "sim0"), "other")
	other.write([]byte("untouched"))
	other.release()
	f.release()
}

// fails sends all kinds of requests to b, which is unreachable. None of them may take longer
// than a connection attempt.
func (r *remoteRig) fails(f *file, b, sim0 uint64) {
	r.t.Helper()
	unreachable := func(got fuse.Status) {
		r.t.Helper()
		if got != fuse.Status(syscall.EHOSTUNREACH) && got != fuse.Status(syscall.ETIMEDOUT) && got != errStale {
			r.t.Errorf("answered %v", got)
		}
	}
	_, status := r.find(sim0, "g")
	unreachable(status)
	for _, dir := range []uint64{b, sim0} {
		unreachable(r.OpenDir(nil, &fuse.OpenIn{InHeader: header(dir)}, &fuse.OpenOut{}))
	}
	h := header(sim0)
	unreachable(r.Mkdir(nil, &fuse.MkdirIn{InHeader: h, Mode: 0o755}, "d", &fuse.EntryOut{}))
	unreachable(r.Unlink(nil, &h, "f"))
	unreachable(r.StatFs(nil, &h, &fuse.StatfsOut{}))
	status = r.tryOpen(f.ino, rdwr)
	unreachable(status)
	_, status = f.tryReadAt(nil, 6, 0)
	if status != fuse.EIO && status != fuse.Status(syscall.ETIMEDOUT) && status != errStale {
		r.t.Errorf("reading: %v", status)
	}
	_, status = r.Write(nil, &fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Size: 1}, []byte{1})
	if status != fuse.EIO && status != fuse.Status(syscall.ETIMEDOUT) && status != errStale {
		r.t.Errorf("writing: %v", status)
	}
}

// TestNodeAgain: the next incarnation of a node is a different one: references to the first
// are stale, and its index is reused once the kernel has forgotten it.
func TestNodeAgain(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	nodes := r.dir(nodesName)
	b, sim0 := r.dir(nodesName, "b"), r.dir(nodesName, "b", "sim0")
	f := r.create(sim0, "f")
	f.write([]byte("before"))
	r.Node("b").Leave()
	r.Node("b").Join()
	var fresh uint64
	kit.Eventually(t, 20*time.Second, func() bool {
		out, status := r.find(nodes, "b")
		if status != fuse.OK {
			return false
		}
		fresh = out.NodeId
		return r.OpenDir(nil, &fuse.OpenIn{InHeader: header(fresh)}, &fuse.OpenOut{}) == fuse.OK && fresh != b
	})
	for _, old := range []uint64{b, sim0, f.ino} {
		r.want(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(old)}, &fuse.AttrOut{}), syscall.ESTALE)
		_, status := r.find(old, "f")
		r.want(status, syscall.ESTALE)
	}
	_, status := f.tryReadAt(nil, 6, 0)
	r.want(status, syscall.ESTALE)
	f.release()
	again, _ := r.openFile(r.dir(nodesName, "b", "sim0", "f"), rdwr)
	if got := again.readAt(100, 0); string(got) != "before" {
		t.Errorf("%q in the file of the next incarnation", got)
	}
	again.release()
}

// TestNodeGone: the name of a node that has left the view does not exist, and its inodes are
// stale.
func TestNodeGone(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	nodes, b := r.dir(nodesName), r.dir(nodesName, "b")
	r.Node("b").Leave()
	r.Node("a").View.Hide("b", true)
	_, status := r.find(nodes, "b")
	r.want(status, syscall.ENOENT)
	if got := r.listAll(nodes); !slices.Equal(got, []string{".", ".."}) {
		t.Errorf("nodes/ holds %v", got)
	}
	_, status = r.find(b, "sim0")
	if status == fuse.OK {
		t.Error("a node that is gone answers")
	}
}

// TestRemotePages: the kernel's pages of a map are dropped when the content changes on another
// node, whichever node owns the file.
func TestRemotePages(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{})
	r.opts.Cluster.OnServed(r.served)
	defer r.opts.Cluster.OnServed(nil)
	a, b := r.Node("a"), r.Node("b")
	theirs := b.File("sim0", "f", pattern(10_000, 1))
	f, _ := r.openFile(r.dir(nodesName, "b", "sim0", "f"), rdwr)
	defer f.release()
	f.readAt(4096, 0) // without a reader, so for pages
	own, err := b.Store.OpenFile(t.Context(), theirs)
	must(t, err)
	_, err = own.WriteAt(t.Context(), pattern(10_000, 2), objects.Write{})
	must(t, err)
	must(t, own.Close(t.Context()))
	kit.Eventually(t, 10*time.Second, func() bool { return r.pages.has(f.ino) })

	ours := a.File("sim0", "g", pattern(10_000, 1))
	g, _ := r.openFile(uint64(ours), rdwr)
	defer g.release()
	g.readAt(4096, 0)
	peer := r.Peer("b", "a")
	file, err := peer.Open(t.Context(), clustertest.Root(), ours, 3)
	must(t, err)
	_, err = file.WriteAt(t.Context(), pattern(10_000, 3), objects.Write{})
	must(t, err)
	must(t, file.Close(t.Context()))
	kit.Eventually(t, 10*time.Second, func() bool { return r.pages.has(uint64(ours)) })
}
