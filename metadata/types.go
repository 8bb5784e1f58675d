package metadata

import (
	"io/fs"
	"time"
)

// Ino is an inode number. It is never reused within one store, so it serves as the kernel's
// node ID. 0 means no inode.
type Ino uint64

// RootIno is the root of the tree. Its entries are the directories of the devices.
const RootIno Ino = 1

// FirstIno is the first number assigned to a user's inode. Lower numbers are reserved for
// the directories of hmcfs itself.
const FirstIno Ino = 1024

// Generation distinguishes inodes of two stores with the same number: it is generated when
// the store is created and recorded in every inode that the store creates.
type Generation uint64

// DeviceName is the directory name of a device, for example "sim0". To this
// package it is plain data.
type DeviceName string

// Epoch identifies one incarnation of a device's memory. A mapping of an older epoch
// describes bytes that no longer exist.
type Epoch uint64

// Timespec is a point in time with the kernel's precision and range: seconds since 1970 and
// 0 to 999 999 999 nanoseconds.
type Timespec struct {
	Sec  int64
	Nsec uint32
}

// TimespecOf converts a time.Time.
func TimespecOf(t time.Time) Timespec {
	return Timespec{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

// Time converts t to a time.Time.
func (t Timespec) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// After reports whether t is later than u.
func (t Timespec) After(u Timespec) bool {
	return t.Sec > u.Sec || t.Sec == u.Sec && t.Nsec > u.Nsec
}

// Mode holds a file's type and permission bits as in st_mode (S_IFMT | 07777).
type Mode uint32

// Inode is one file, directory, symlink or special file.
type Inode struct {
	Ino   Ino
	Gen   Generation
	Mode  Mode // type and permissions as in st_mode
	UID   uint32
	GID   uint32
	Nlink uint32
	Rdev  uint32
	// Size is in bytes. For a directory it is the number of its entries.
	Size  uint64
	Atime Timespec
	Mtime Timespec
	Ctime Timespec
	Btime Timespec
	// Device is the device whose directory tree contains the inode; empty only for the root
	// and PublishIno.
	Device DeviceName
	// Epoch is the device's epoch in which the content was written. It is compared with the
	// device's current epoch to detect lost content. 0 means that there is no content yet,
	// so nothing can be lost.
	Epoch Epoch
	// Allocated is the number of bytes of device memory that the content uses.
	Allocated uint64
	// Parent and Name are the primary link of the inode, from which its path is built.
	Parent Ino
	Name   string
	// Target is the target of a symlink.
	Target string
	// Key is the key under keys/ that the inode has, or empty.
	Key string
	// Parts is the number of parts of the file that have keys. BindPart sets it.
	Parts uint32
	// Path is the route of the last transfer into the object, or empty.
	Path string
	// Bound reports whether the content is memory of another process.
	Bound BindState
	// Expires is the time at which the file expires; zero means never. Expire sets it.
	Expires Timespec
	// Taken is set for a file in PublishIno that was received. Take sets it.
	Taken bool
}

// BindState is the state of a file's binding to memory of another process.
type BindState uint8

// The states of a binding, as they are stored.
const (
	// Unbound means that the file's content is its own.
	Unbound BindState = iota
	// BoundLive means that another process owns the file's content.
	BoundLive
	// BoundLost means that the owner, and with it the content, is gone.
	BoundLost
)

// IsDir reports whether the inode is a directory.
func (i Inode) IsDir() bool { return i.Mode.Type() == TypeDir }

// IsRegular reports whether the inode is a regular file.
func (i Inode) IsRegular() bool { return i.Mode.Type() == TypeRegular }

// IsSymlink reports whether the inode is a symbolic link.
func (i Inode) IsSymlink() bool { return i.Mode.Type() == TypeSymlink }

// The types of inodes: the type bits of a Mode, with the values in POSIX systems'
// <sys/stat.h>, and the mask of these bits.
const (
	sIFMT       Mode = 0o170000
	TypeFIFO    Mode = 0o010000
	TypeChar    Mode = 0o020000
	TypeDir     Mode = 0o040000
	TypeBlock   Mode = 0o060000
	TypeRegular Mode = 0o100000
	TypeSymlink Mode = 0o120000
	TypeSocket  Mode = 0o140000
)

// ModeSetGID is the set-group-id bit: entries created in a directory with it inherit the
// directory's group.
const ModeSetGID Mode = 0o2000

// ModeSticky is the sticky bit: in a directory with it, users may remove and rename only
// their own entries.
const ModeSticky Mode = 0o1000

// Type returns the file type bits of the mode.
func (m Mode) Type() Mode { return m & sIFMT }

// Perm returns the permission bits including the set-id and sticky bits.
func (m Mode) Perm() Mode { return m & 0o7777 }

// FileMode converts the mode to the standard library's, type bits included.
func (m Mode) FileMode() fs.FileMode {
	out := fs.FileMode(m & 0o777)
	for _, c := range []struct {
		mask, bits Mode
		mode       fs.FileMode
	}{
		{sIFMT, TypeDir, fs.ModeDir},
		{sIFMT, TypeSymlink, fs.ModeSymlink},
		{sIFMT, TypeFIFO, fs.ModeNamedPipe},
		{sIFMT, TypeSocket, fs.ModeSocket},
		{sIFMT, TypeBlock, fs.ModeDevice},
		{sIFMT, TypeChar, fs.ModeDevice | fs.ModeCharDevice},
		{0o4000, 0o4000, fs.ModeSetuid},
		{ModeSetGID, ModeSetGID, fs.ModeSetgid},
		{ModeSticky, ModeSticky, fs.ModeSticky},
	} {
		if m&c.mask == c.bits {
			out |= c.mode
		}
	}
	return out
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Ino  Ino
	Type Mode // the type bits of the inode's mode
	// Cookie is the position at which a listing continues after this entry. It stays the
	// same while the entry exists, whatever happens to other entries.
	Cookie Cookie
}

// Cookie is a position in a directory listing: 0 is the start.
type Cookie uint64

// AllocationID identifies one allocation of a device within one epoch.
type AllocationID uint64

// Mapping describes the device memory that holds one piece of an object: the record of its
// pinned buffer. It is plain data that this package does not interpret.
type Mapping struct {
	FileOff    uint64 // offset of the piece in the object, in bytes
	Len        uint64 // length of the piece in bytes
	Written    uint64 // number of its first bytes that hold data; the rest reads as zeros
	Device     DeviceName
	Epoch      Epoch
	Allocation AllocationID
	Off        uint64 // offset of the piece in the allocation, in bytes
	Pinned     bool   // page-locked for the device
}

// Node describes the inode that Create creates.
type Node struct {
	// Ino comes from NewInos, so that content can be created under it before; 0 allocates
	// one.
	Ino  Ino
	Mode Mode // type and permissions; no type means a regular file
	UID  uint32
	GID  uint32
	// Rdev is the device number of a character or block special file.
	Rdev uint32
	// Target is the target of a symlink.
	Target string
	// Expires is the time at which a regular file expires; zero means never.
	Expires Timespec
}

// DeviceRecord is the stored record of one device.
type DeviceRecord struct {
	Name  DeviceName
	Ino   Ino   // the device's root directory
	Epoch Epoch // the epoch recorded last; 0 for none
}

// Rename describes the move of a name.
type Rename struct {
	From    Ino
	Name    string
	To      Ino
	NewName string
	Flags   RenameFlags
}

// RenameResult describes the inodes after a Rename.
type RenameResult struct {
	// Moved is the inode that now has the new name.
	Moved Inode
	// Replaced is the inode that had the new name before, in its state after the rename; if
	// its Nlink is 0 its records are gone. Nil if there was none.
	Replaced *Inode
	// Exchanged is the inode that now has the old name, with Exchange.
	Exchanged *Inode
}

// RenameFlags modify Rename. The values are those of renameat2.
type RenameFlags uint32

// The flags of Rename. At most one may be set.
const (
	// NoReplace fails with ErrExist rather than replacing the new name.
	NoReplace RenameFlags = 1
	// Exchange swaps two names that both exist.
	Exchange RenameFlags = 2
)

// XattrFlags modify SetXattr. The values are those of setxattr.
type XattrFlags uint32

// The flags of SetXattr. At most one may be set.
const (
	// XattrCreate fails with ErrExist if the attribute exists.
	XattrCreate XattrFlags = 1
	// XattrReplace fails with ErrNoXattr if the attribute does not exist.
	XattrReplace XattrFlags = 2
)

// KeyEntry is one key and the inode that has it.
type KeyEntry struct {
	Key string
	Ino Ino
	// Part is the part of the inode that the key names; empty for all of it.
	Part string
}

// PublishIno is the directory publish/. It exists in every store, without an entry in the
// root, and belongs to no device: a file in it stays on its own device. Files enter it only
// by Publish and Put, and Rename or MoveDevice moves one out, to a directory of its device
// or of another.
const PublishIno Ino = 16

// publishName is the name of PublishIno in paths.
const publishName = "publish"

// isTop reports whether a directory exists without an entry.
func isTop(ino Ino) bool { return ino == RootIno || ino == PublishIno }
