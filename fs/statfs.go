package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// fragment is the unit of statfs in bytes.
	fragment = 4096
	// maxInodes is the number that df -i shows; the actual bound is memory.
	maxInodes = 1 << 32
)

// StatFs returns the memory of the device that an inode is on; for the root and hmcfs's own
// directories, that of all devices together, and for nodes/NODE that of the node's devices.
func (f *filesystem) StatFs(cancel <-chan struct{}, header *fuse.InHeader, out *fuse.StatfsOut) (status fuse.Status) {
	defer f.ops.done(opStatFs, time.Now(), &status)
	usage, err := usageOf(f, cancel, header)
	if err != nil {
		return f.errs.status(err)
	}
	*out = fuse.StatfsOut{
		Blocks:  uint64(usage.Total) / fragment,
		Bfree:   uint64(usage.Free) / fragment,
		Bavail:  uint64(usage.Free) / fragment,
		Files:   maxInodes,
		Ffree:   maxInodes,
		Bsize:   fragment,
		Frsize:  fragment,
		NameLen: metadata.MaxName,
	}
	return fuse.OK
}

// usageOf returns the use of the device that an inode is on.
func usageOf(f *filesystem, cancel <-chan struct{}, header *fuse.InHeader) (devices.Usage, error) {
	ino := metadata.Ino(header.NodeId)
	if n := f.provided(ino); n != nil {
		var err error
		if ino, err = n.device(); err != nil {
			return devices.Usage{}, err
		}
	}
	ctx, who, done := f.call(cancel, header, ino)
	defer done()
	return f.tree.StatFS(ctx, who, ino)
}
