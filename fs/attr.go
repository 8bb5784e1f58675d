package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

const (
	// blockSize is the unit of st_blocks.
	blockSize = 512
	// fileIOSize is st_blksize of files: cmp and cp then move 1 MiB a call
	// instead of 4 KiB.
	fileIOSize = 1 << 20
	// otherIOSize is st_blksize of everything else.
	otherIOSize = 4096
)

// fillAttr converts an inode. The blocks matter beyond du: cp takes a file
// with fewer blocks than bytes for sparse, and does not copy it by one
// copy_file_range.
func fillAttr(out *fuse.Attr, a *objects.Attr) {
	*out = fuse.Attr{
		Ino:       uint64(a.Ino),
		Size:      a.Size,
		Blocks:    (a.Allocated + blockSize - 1) / blockSize,
		Atime:     uint64(a.Atime.Sec),
		Mtime:     uint64(a.Mtime.Sec),
		Ctime:     uint64(a.Ctime.Sec),
		Atimensec: a.Atime.Nsec,
		Mtimensec: a.Mtime.Nsec,
		Ctimensec: a.Ctime.Nsec,
		Mode:      uint32(a.Mode),
		Nlink:     a.Nlink,
		Owner:     fuse.Owner{Uid: a.UID, Gid: a.GID},
		Rdev:      a.Rdev,
		Blksize:   otherIOSize,
	}
	switch a.Mode.Type() {
	case metadata.TypeRegular:
		out.Blksize = fileIOSize
	case metadata.TypeSymlink:
		out.Size = uint64(len(a.Target))
	}
}

// fillEntry answers an inode by a name. Nothing else changes the tree, so
// the kernel may keep it, apart from what can change without it: an object
// that is lost, and one that is written past the daemon (attrTimeout).
func (f *filesystem) fillEntry(out *fuse.EntryOut, a *objects.Attr) {
	fillAttr(&out.Attr, a)
	out.NodeId = uint64(a.Ino)
	out.Generation = uint64(a.Gen)
	if a.State == objects.StateLost || isReserved(a.Ino) {
		return
	}
	out.SetEntryTimeout(f.timeout)
	if f.mayCacheAttr(a) {
		out.SetAttrTimeout(f.timeout)
	}
}

// fillAttrOut answers the attributes of an inode.
func (f *filesystem) fillAttrOut(out *fuse.AttrOut, a *objects.Attr) {
	fillAttr(&out.Attr, a)
	if a.State != objects.StateLost && !isReserved(a.Ino) && f.mayCacheAttr(a) {
		out.SetTimeout(f.timeout)
	}
}

// mayCacheAttr says whether the kernel may keep the attributes. It may not
// while a file is open for writing that it serves by itself: a store through
// a map of such a file changes size and times and tells nobody.
func (f *filesystem) mayCacheAttr(a *objects.Attr) bool {
	return !a.IsRegular() || !f.backings.isWritten(a.Ino)
}
