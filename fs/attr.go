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
	// fileIOSize is st_blksize of files: it makes cmp and cp move 1 MiB per call instead of
	// 4 KiB.
	fileIOSize = 1 << 20
	// otherIOSize is st_blksize of everything else.
	otherIOSize = 4096
)

// fillAttr converts an inode's attributes. The number of blocks matters beyond du: cp
// treats a file with fewer blocks than bytes as sparse, and does not copy it with a single
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

// replies fills in the kernel's answers about inodes, and the time it may cache them.
type replies struct {
	store *objects.Store
	// timeout is the time the kernel may cache names and attributes.
	timeout  time.Duration
	backings *backings
	fleeting *fleeting
	guests   *guests
}

// fillEntry fills in the answer for an inode found by a name of a directory. Only requests
// of the kernel change the tree, so it may cache the answer, except for what can change
// without it: an object that is lost, a key, a name that hmcfs itself removes, and data
// written without the daemon (attrTimeout).
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

func (r *replies) fillAttrOut(out *fuse.AttrOut, a *objects.Attr) {
	fillAttr(&out.Attr, a)
	out.SetTimeout(r.attrTimeout(a))
}

// attrTimeout returns the time the kernel may cache attributes. It may not cache those of a
// file that is open for writing and that it serves itself: a store through a map of such a
// file changes its times without a request. Nor those of a set-id file: a write clears the
// set-id bits without the kernel asking for the mode again.
func (r *replies) attrTimeout(a *objects.Attr) time.Duration {
	switch {
	case a.State == objects.StateLost, isKey(a.Ino), isView(a.Ino), a.Ino == statsIno, isPublished(a), hasSetID(a):
		return 0
	case a.IsRegular() && r.backings.isWritten(a.Ino), a.IsDir() && r.store.Volatile(a.Ino):
		return 0
	}
	return r.lasting(a, a.Keep)
}

// hasSetID reports whether a write by another user clears mode bits of the file.
func hasSetID(a *objects.Attr) bool { return a.IsRegular() && a.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 }

// lasting returns the time the kernel may cache an answer about an inode: keep, unless it is
// 0, or else the mount's timeout, but not beyond the inode's expiry.
func (r *replies) lasting(a *objects.Attr, keep time.Duration) time.Duration {
	if keep > 0 {
		return keep // the kernel cannot be notified of changes there
	}
	timeout := r.timeout
	if r.guests.seen.Load() {
		timeout = min(timeout, keepShared)
	}
	if a.Expires == (metadata.Timespec{}) {
		return timeout
	}
	r.fleeting.add(a.Ino)
	return max(0, min(timeout, time.Until(a.Expires.Time())))
}
