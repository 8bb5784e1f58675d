package fs

import (
	"math"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// Kernel receives notifications of changes that the kernel did not make, so that it drops
// its cached state. No lock of this package is held when it is called.
type Kernel interface {
	// InvalidateEntry drops a name of a directory. It waits for the kernel's
	// lock of the directory, so a request's handler must not call it.
	InvalidateEntry(parent metadata.Ino, name string)
	// InvalidateInode drops the attributes of an inode. It takes no kernel lock that a
	// request can hold, so a request's handler may call it. known is false when the kernel
	// has no such inode.
	InvalidateInode(ino metadata.Ino) (known bool)
	// InvalidatePages drops the pages of an inode, which maps then read again, and its
	// attributes. It waits for reads of those pages, and writes back those that were stored
	// to, so it must not be called while holding anything that a read or a write waits for,
	// nor by the handler of a truncation.
	InvalidatePages(ino metadata.Ino)
	// InvalidateRange is InvalidatePages for the pages that contain the n bytes at off.
	InvalidateRange(ino metadata.Ino, off, n uint64)
}

// noKernel is the Kernel before the mount exists.
type noKernel struct{}

func (noKernel) InvalidateEntry(metadata.Ino, string) {}
func (noKernel) InvalidateInode(metadata.Ino) bool    { return false }
func (noKernel) InvalidatePages(metadata.Ino)         {}

func (noKernel) InvalidateRange(metadata.Ino, uint64, uint64) {}

// fuseKernel is the kernel at the other end of a FUSE connection. A name or an inode that
// the kernel does not have is no error.
type fuseKernel struct{ server *fuse.Server }

func (k fuseKernel) InvalidateEntry(parent metadata.Ino, name string) {
	k.server.EntryNotify(uint64(parent), name)
}

// attributesOnly is the offset that leaves the pages of an inode untouched.
const attributesOnly = -1

func (k fuseKernel) InvalidateInode(ino metadata.Ino) (known bool) {
	return k.server.InodeNotify(uint64(ino), attributesOnly, 0) == fuse.OK
}

func (k fuseKernel) InvalidatePages(ino metadata.Ino) {
	k.server.InodeNotify(uint64(ino), 0, 0)
}

func (k fuseKernel) InvalidateRange(ino metadata.Ino, off, n uint64) {
	off, n = rangeOf(off, n)
	k.server.InodeNotify(uint64(ino), int64(off), int64(n))
}

// rangeOf returns a range as the kernel has it: a length of 0 extends to the end.
func rangeOf(off, n uint64) (from, length uint64) {
	if n > math.MaxInt64-off {
		n = 0
	}
	return off, n
}

// invalidator notifies the kernel of inodes that change without it.
type invalidator struct {
	// kernel is set by Init, once the kernel is connected.
	kernel   Kernel
	store    *objects.Store
	views    *views
	shared   *shared
	fleeting *fleeting
	// names counts the changes of names.
	names *atomic.Uint64
}

// changed drops the kernel's pages of the open tensors of a file whose content has changed,
// for processes that have them mapped.
func (v *invalidator) changed(file metadata.Ino) {
	for _, id := range v.views.openOf(file) {
		v.kernel.InvalidatePages(id)
	}
}

// objectChanged notifies the kernel of an object that was bound, has a new expiry, or is
// lost with its owner. The pages of a map of a lost object must not keep showing it.
func (v *invalidator) objectChanged(ino metadata.Ino, lost bool) {
	if !lost {
		if v.kernel.InvalidateInode(ino) {
			v.fleeting.add(ino) // it may have a time to live now
		}
		return
	}
	v.kernel.InvalidatePages(ino)
	v.changed(ino)
}

// otherChanged drops the kernel's pages of files of other nodes whose content has changed:
// of inos or, if all is not nil, of the inodes for which all returns true. There are no
// names and attributes to drop, since the kernel does not cache them for long.
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

// served drops what the kernel caches of an inode of this node that another node has
// changed. Cached names expire on their own (keepShared).
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
			v.fleeting.add(n.Ino) // the kernel still caches its name
		}
	})
}
