package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// fillStatx converts an inode as fillAttr does, with the time of birth.
func fillStatx(out *fuse.Statx, a *objects.Attr) {
	var attr fuse.Attr
	fillAttr(&attr, a)
	out.Mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
	out.Blksize = attr.Blksize
	out.Nlink = attr.Nlink
	out.Uid = attr.Uid
	out.Gid = attr.Gid
	out.Mode = uint16(attr.Mode)
	out.Ino = attr.Ino
	out.Size = attr.Size
	out.Blocks = attr.Blocks
	fillStatxTime(&out.Atime, a.Atime)
	fillStatxTime(&out.Btime, a.Btime)
	fillStatxTime(&out.Ctime, a.Ctime)
	fillStatxTime(&out.Mtime, a.Mtime)
	out.RdevMajor = unix.Major(uint64(attr.Rdev))
	out.RdevMinor = unix.Minor(uint64(attr.Rdev))
}

func fillStatxTime(out *fuse.SxTime, t metadata.Timespec) {
	out.Sec = uint64(t.Sec)
	out.Nsec = t.Nsec
}
