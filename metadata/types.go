package metadata

import (
	"io/fs"
	"time"
)

// Ino is an inode number. It is never used twice within one store, so it
// serves as the kernel's node id. 0 is no inode.
type Ino uint64

// RootIno is the root of the tree. Its entries are the device directories.
const RootIno Ino = 1

// FirstIno is the first number given to an inode of a user. The numbers
// below are reserved for the directories that belong to hmcfs.
const FirstIno Ino = 1024

// Generation tells two stores apart that used the same inode number: it is
// drawn when the store is created and kept in every inode made since.
type Generation uint64

// DeviceName is the directory name of a device, for example "sim0". To this
// package it is plain data.
type DeviceName string

// Epoch is one incarnation of a device's memory. A mapping of an older epoch
// describes bytes that are gone.
type Epoch uint64

// Timespec is a point in time with the precision and the range that the
// kernel has: seconds since 1970 and 0 to 999 999 999 nanoseconds.
type Timespec struct {
	Sec  int64
	Nsec uint32
}

// TimespecOf converts a time.
func TimespecOf(t time.Time) Timespec {
	return Timespec{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

// Time converts back to a time.
func (t Timespec) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// After says whether t is later than u.
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
	// Device is the device whose directory tree holds the inode; empty for
	// the root alone.
	Device DeviceName
	// Epoch is the device's epoch in which the content was written. It is
	// compared with the device's present epoch to find lost content. 0 means
	// that there is no content yet, so nothing can be lost.
	Epoch Epoch
	// Allocated is the number of bytes of device memory that the content takes.
	Allocated uint64
	// Parent and Name are one place where the inode is linked: the one that
	// its path is built from.
	Parent Ino
	Name   string
	// Target is the target of a symlink.
	Target string
	// Key is the key under keys/ that the inode carries, or empty.
	Key string
	// Path is the way that the last transfer into the object took, or empty.
	Path string
	// Bound says whether the content is memory of another process.
	Bound BindState
	// Expires is the time at which the file ends; zero is never. Expire sets it.
	Expires Timespec
	// Taken says that a file in PublishIno is received. Take sets it.
	Taken bool
}

// BindState says whether a file's content is memory of another process.
type BindState uint8

// The states of a binding, as they are stored.
const (
	// Unbound is every file whose content is its own.
	Unbound BindState = iota
	// BoundLive is a file whose content another process owns.
	BoundLive
	// BoundLost is one whose owner is gone, and the bytes with it.
	BoundLost
)

// IsDir says whether the inode is a directory.
func (i Inode) IsDir() bool { return i.Mode&sIFMT == sIFDIR }

// IsRegular says whether the inode is a regular file.
func (i Inode) IsRegular() bool { return i.Mode&sIFMT == sIFREG }

// IsSymlink says whether the inode is a symbolic link.
func (i Inode) IsSymlink() bool { return i.Mode&sIFMT == sIFLNK }

// The file types of st_mode, by their values in POSIX systems' <sys/stat.h>.
const (
	sIFMT  Mode = 0o170000
	sIFDIR Mode = 0o040000
	sIFREG Mode = 0o100000
	sIFLNK Mode = 0o120000
)

// Type returns the bits of the mode that tell the file type.
func (m Mode) Type() Mode { return m & sIFMT }

// Perm returns the permission bits with set-id and sticky bits.
func (m Mode) Perm() Mode { return m & 0o7777 }

// FileMode converts to the standard library's mode, type bits included.
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
	// Cookie is the place at which a listing goes on after this entry. It stays the same
	// while the entry stays, whatever happens to other entries.
	Cookie Cookie
}

// Cookie is a position in a directory listing: 0 is the start.
type Cookie uint64

// AllocationID names one allocation of a device within one epoch.
type AllocationID uint64

// Mapping says which device memory holds one piece of an object: the record
// of its pinned buffer. It is plain data: this package never follows it.
type Mapping struct {
	FileOff    uint64 // where in the object the piece begins, in bytes
	Len        uint64 // length of the piece in bytes
	Written    uint64 // how many of its first bytes hold data; the rest reads as zeros
	Device     DeviceName
	Epoch      Epoch
	Allocation AllocationID
	Off        uint64 // where in the allocation the piece begins, in bytes
	Pinned     bool   // page-locked for the device
}
