package fs

import (
	"math"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
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
