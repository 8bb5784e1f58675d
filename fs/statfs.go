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
	// maxInodes is what df -i shows: only memory bounds the number.
	maxInodes = 1 << 32
)

// StatFs tells the memory of the device that an inode is on; for the root and
// the directories of hmcfs's own, that of all devices together, and so it is
// with nodes/NODE and that node's.
func (f *filesystem) StatFs(cancel <-chan struct{}, header *fuse.InHeader, out *fuse.StatfsOut) (status fuse.Status) {
	defer f.ops.done(opStatFs, time.Now(), &status)
	ino := metadata.Ino(header.NodeId)
	var usage devices.Usage
	var err error
	if isRemote(ino) {
		usage, err = f.remoteUsage(cancel, header)
	} else {
		usage, err = f.usage(ino)
	}
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

func (f *filesystem) usage(ino metadata.Ino) (devices.Usage, error) {
	if isView(ino) {
		n, err := f.views.get(ino)
		if err != nil {
			return devices.Usage{}, err
		}
		ino = n.file
	}
	if !isReserved(ino) && ino != metadata.PublishIno {
		d, err := f.store.DeviceOf(background(), ino)
		return d.Usage, err
	}
	all, err := f.store.Devices(background())
	var sum devices.Usage
	for i := range all {
		sum.Total += all[i].Usage.Total
		sum.Used += all[i].Usage.Used
		sum.Free += all[i].Usage.Free
	}
	return sum, err
}
