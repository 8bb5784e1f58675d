package metadata

// The limits of names and links.
const (
	// MaxName is the length in bytes of the longest name of an entry, and of
	// an extended attribute.
	MaxName = 255
	// MaxKey is the length in bytes of the longest key.
	MaxKey = 255
	// MaxXattr is the size in bytes of the largest value of an attribute.
	MaxXattr = 64 << 10
	// MaxLinks bounds the links of an inode.
	MaxLinks = 1 << 20
	// MaxTarget is the length in bytes of the longest target of a symlink.
	MaxTarget = 4095
)

// The types of inodes: the type bits of a Mode.
const (
	TypeFIFO    Mode = 0o010000
	TypeChar    Mode = 0o020000
	TypeDir     Mode = sIFDIR
	TypeBlock   Mode = 0o060000
	TypeRegular Mode = sIFREG
	TypeSymlink Mode = sIFLNK
	TypeSocket  Mode = 0o140000
)

// ModeSetGID is the set-group-id bit: a directory with it hands its group on
// to what is created in it.
const ModeSetGID Mode = 0o2000

// ModeSticky is the sticky bit: of the entries of a directory with it, users may remove
// and rename their own only.
const ModeSticky Mode = 0o1000

// Node says what Create is to make.
type Node struct {
	// Ino is of NewInos, so that content could be made under it before; 0 draws one.
	Ino  Ino
	Mode Mode // type and permissions; no type means a regular file
	UID  uint32
	GID  uint32
	// Rdev is the device number of a character or block special file.
	Rdev uint32
	// Target is the target of a symlink.
	Target string
	// Expires is the time at which a regular file ends; zero is never.
	Expires Timespec
}

// DeviceRecord has what the store keeps of one device.
type DeviceRecord struct {
	Name  DeviceName
	Ino   Ino   // the device's root directory
	Epoch Epoch // the last one that was recorded; 0 for none
}

// RenameFlags change what Rename does, by the values of renameat2.
type RenameFlags uint32

// The flags of Rename. At most one is given.
const (
	// NoReplace fails with ErrExist rather than replacing the new name.
	NoReplace RenameFlags = 1
	// Exchange swaps two names that both exist.
	Exchange RenameFlags = 2
)

// Rename says which name moves where.
type Rename struct {
	From    Ino
	Name    string
	To      Ino
	NewName string
	Flags   RenameFlags
}

// RenameResult tells what became of the inodes of a Rename.
type RenameResult struct {
	// Moved is the inode that now has the new name.
	Moved Inode
	// Replaced is the inode that had the new name, as it is after; when its
	// Nlink is 0 its records are gone. Nil when there was none.
	Replaced *Inode
	// Exchanged is the inode that now has the old name, with Exchange.
	Exchanged *Inode
}

// XattrFlags change what SetXattr does, by the values of setxattr.
type XattrFlags uint32

// The flags of SetXattr. At most one is given.
const (
	// XattrCreate fails with ErrExist when there is such an attribute.
	XattrCreate XattrFlags = 1
	// XattrReplace fails with ErrNoXattr when there is no such attribute.
	XattrReplace XattrFlags = 2
)

// KeyEntry is one key and the inode that carries it.
type KeyEntry struct {
	Key string
	Ino Ino
}
