package fs

import (
	"math"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// Kernel is told of what changes without it, so that it drops what it keeps.
// No lock of this package is held when it is called.
type Kernel interface {
	// InvalidateEntry drops a name of a directory. It waits for the kernel's
	// lock of the directory, so a request's handler must not call it.
	InvalidateEntry(parent metadata.Ino, name string)
	// InvalidateInode drops the attributes of an inode. It takes no lock of
	// the kernel's that a request can hold, so a handler may call it. known is
	// false when the kernel has no such inode.
	InvalidateInode(ino metadata.Ino) (known bool)
	// InvalidatePages drops the pages of an inode, which maps then read
	// again, and its attributes. It waits for reads of those pages and writes
	// back those that were stored to, so it must not be called with anything
	// held that a read or a write waits for, nor by the handler of a truncation.
	InvalidatePages(ino metadata.Ino)
	// InvalidateRange is InvalidatePages of the pages that n bytes at off are in.
	InvalidateRange(ino metadata.Ino, off, n uint64)
}

// noKernel is there before the mount is.
type noKernel struct{}

func (noKernel) InvalidateEntry(metadata.Ino, string) {}
func (noKernel) InvalidateInode(metadata.Ino) bool    { return false }
func (noKernel) InvalidatePages(metadata.Ino)         {}

func (noKernel) InvalidateRange(metadata.Ino, uint64, uint64) {}

// fuseKernel is the kernel behind a connection. A name or an inode that the
// kernel does not have is no error.
type fuseKernel struct{ server *fuse.Server }

func (k fuseKernel) InvalidateEntry(parent metadata.Ino, name string) {
	k.server.EntryNotify(uint64(parent), name)
}

// attributesOnly is the offset that leaves the pages of an inode alone.
const attributesOnly = -1

func (k fuseKernel) InvalidateInode(ino metadata.Ino) (known bool) {
	return k.server.InodeNotify(uint64(ino), attributesOnly, 0) == fuse.OK
}

func (k fuseKernel) InvalidatePages(ino metadata.Ino) {
	k.server.InodeNotify(uint64(ino), 0, 0)
}

func (k fuseKernel) InvalidateRange(ino metadata.Ino, off, n uint64) {
	if n > math.MaxInt64-off {
		n = 0 // to the end
	}
	k.server.InodeNotify(uint64(ino), int64(off), int64(n))
}

// invalidator tells the kernel of inodes that change without it.
type invalidator struct {
	// kernel is set when the kernel is there (Init).
	kernel   Kernel
	store    *objects.Store
	views    *views
	shared   *shared
	fleeting *fleeting
	// names counts the changes of names.
	names *atomic.Uint64
}

// changed drops what the kernel keeps of the open tensors of a file whose
// content has changed, for those who have them mapped.
func (v *invalidator) changed(file metadata.Ino) {
	for _, id := range v.views.openOf(file) {
		v.kernel.InvalidatePages(id)
	}
}

// objectChanged tells the kernel of what was bound, has another end, or is lost
// with its owner. The pages of a map of what is lost must not go on showing it.
func (v *invalidator) objectChanged(ino metadata.Ino, lost bool) {
	if !lost {
		if v.kernel.InvalidateInode(ino) {
			v.fleeting.add(ino) // it may have an end now
		}
		return
	}
	v.kernel.InvalidatePages(ino)
	v.changed(ino)
}

// otherChanged drops the kernel's pages of files of other nodes whose content has
// changed: of inos, and of those for which all, unless it is nil, is true. Names and
// attributes the kernel keeps none.
func (v *invalidator) otherChanged(inos []metadata.Ino, all func(metadata.Ino) bool) {
	if all != nil {
		inos = v.shared.pagesWhere(all)
	}
	for _, ino := range inos {
		if v.shared.hasPages(ino) {
			v.shared.drop(ino, func() { v.kernel.InvalidatePages(ino) })
		}
	}
}

// served drops what the kernel keeps of an inode of ours that another node has
// changed. Names go by themselves (keepShared).
func (v *invalidator) served(n objects.Notice) {
	if n.Dir != 0 {
		v.names.Add(1)
		v.shared.drop(n.Dir, func() { v.kernel.InvalidateInode(n.Dir) })
	}
	if n.Ino == 0 {
		return
	}
	v.shared.drop(n.Ino, func() {
		if v.shared.hasPages(n.Ino) {
			v.kernel.InvalidatePages(n.Ino)
			v.changed(n.Ino)
			return
		}
		if !v.kernel.InvalidateInode(n.Ino) {
			return
		}
		v.changed(n.Ino)
		if nameless, _ := v.store.Nameless(background(), n.Ino); nameless {
			v.fleeting.add(n.Ino) // the kernel keeps its name by mistake
		}
	})
}
