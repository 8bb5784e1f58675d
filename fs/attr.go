package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

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
	if a.IsRegular() {
		out.Blksize = fileIOSize
	}
	if a.IsSymlink() {
		out.Size = uint64(len(a.Target))
	}
}

// replies fills in what the kernel is told of inodes, and how long it may keep that.
type replies struct {
	store *objects.Store
	// timeout is the time the kernel keeps names and attributes.
	timeout  time.Duration
	backings *backings
	fleeting *fleeting
}

// fillEntry answers an inode by a name of a directory. Nothing else changes
// the tree, so the kernel may keep it, apart from what can change without it:
// an object that is lost, a key, a name that hmcfs itself takes away, and what
// is written past the daemon (attrTimeout).
func (r *replies) fillEntry(dir metadata.Ino, out *fuse.EntryOut, a *objects.Attr) {
	fillAttr(&out.Attr, a)
	out.NodeId = uint64(a.Ino)
	out.Generation = uint64(a.Gen)
	out.SetAttrTimeout(r.attrTimeout(a))
	if a.State == objects.StateLost || isKey(a.Ino) || isView(a.Ino) || r.store.Volatile(dir) {
		out.SetEntryTimeout(0)
	} else {
		out.SetEntryTimeout(r.lasting(a, a.KeepName))
	}
}

// fillAttrOut answers the attributes of an inode.
func (r *replies) fillAttrOut(out *fuse.AttrOut, a *objects.Attr) {
	fillAttr(&out.Attr, a)
	out.SetTimeout(r.attrTimeout(a))
}

// attrTimeout returns the time the kernel may keep attributes. It may not keep
// those of a file that is open for writing and that it serves by itself: a
// store through a map of such a file changes its times without a request. Nor
// those of a file that runs as its owner or group: a write takes that away, and
// does not have the kernel ask for the mode again.
func (r *replies) attrTimeout(a *objects.Attr) time.Duration {
	switch {
	case a.State == objects.StateLost, isKey(a.Ino), isView(a.Ino), a.Ino == statsIno, isPublished(a), hasSetID(a):
		return 0
	case a.IsRegular() && r.backings.isWritten(a.Ino), a.IsDir() && r.store.Volatile(a.Ino):
		return 0
	}
	return r.lasting(a, a.Keep)
}

// hasSetID says whether a write by another user takes bits away.
func hasSetID(a *objects.Attr) bool { return a.IsRegular() && a.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 }

// lasting returns the time the kernel may keep an answer about an inode: no longer than it is
// there, or than the tree says; 0 is no bound.
func (r *replies) lasting(a *objects.Attr, keep time.Duration) time.Duration {
	if keep > 0 {
		return keep // the kernel can't be told of changes there
	}
	if a.Expires == (metadata.Timespec{}) {
		return r.timeout
	}
	r.fleeting.add(a.Ino)
	return max(0, min(r.timeout, time.Until(a.Expires.Time())))
}
