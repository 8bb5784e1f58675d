package fs

import (
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap/zaptest"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/clustertest"
)

// pages is a kernel that records the inodes whose pages it was asked to drop, from any
// goroutine.
type pages struct {
	noKernel

	mu   sync.Mutex
	seen []metadata.Ino
}

func (p *pages) InvalidatePages(ino metadata.Ino) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, ino)
}

func (p *pages) has(ino uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.seen, metadata.Ino(ino))
}

// remoteRig is a rig of node a, in a world of several nodes.
type remoteRig struct {
	*rig
	*clustertest.World
	pages pages
}

func newRemoteRig(t *testing.T, o clustertest.Options) *remoteRig {
	t.Helper()
	w := clustertest.New(t, o)
	a := w.Node("a")
	opts := Options{
		Store: a.Store, Engine: a.Engine, Cluster: a.Cluster, MountPoint: "/",
		ReadAhead: testReadAhead, MaxWrite: testRequest, Logger: zaptest.NewLogger(t),
	}
	opts.EnsureDefaults()
	must(t, opts.Validate())
	r := &remoteRig{rig: &rig{filesystem: newFilesystem(opts), t: t}, World: w}
	r.filesystem.kernel = &r.pages
	reason := "there is no kernel"
	r.backings.reason.Store(&reason)
	r.tree.OnInvalidate(r.otherChanged)
	t.Cleanup(func() {
		a.Cluster.OnInvalidate(nil)
		r.closeHandles()
		if n := r.ahead.used.Load(); n != 0 {
			t.Errorf("%d bytes of read-ahead are still held", n)
		}
	})
	return r
}

// dir walks from the root.
func (r *remoteRig) dir(path ...string) uint64 {
	r.t.Helper()
	ino := rootIno
	for _, name := range path {
		if ino = r.lookup(ino, name).NodeId; ino == 0 {
			r.t.Fatalf("no %s in %v", name, path)
		}
	}
	return ino
}

// find looks up a name that may not be there.
func (r *remoteRig) find(parent uint64, name string) (fuse.EntryOut, fuse.Status) {
	var out fuse.EntryOut
	h := header(parent)
	status := r.Lookup(nil, &h, name, &out)
	if status == fuse.OK && out.NodeId == 0 {
		status = fuse.ENOENT
	}
	return out, status
}

// there returns an inode of a node's own store, by its path.
func (r *remoteRig) there(node members.Name, device, name string) objects.Attr {
	r.t.Helper()
	n := r.Node(node)
	a, err := n.Store.Lookup(r.t.Context(), n.Dir(device), name)
	must(r.t, err)
	return a
}

// tryOpen tries to open a file.
func (r *remoteRig) tryOpen(ino uint64, flags uint32) fuse.Status {
	return r.Open(nil, &fuse.OpenIn{InHeader: header(ino), Flags: flags}, &fuse.OpenOut{})
}

const rdwr = uint32(syscall.O_RDWR)
