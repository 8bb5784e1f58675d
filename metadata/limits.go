package metadata

// The limits on names and links.
const (
	// MaxName is the maximum length, in bytes, of the name of an entry and of an extended
	// attribute.
	MaxName = 255
	// MaxKey is the maximum length, in bytes, of a key.
	MaxKey = 255
	// MaxXattr is the maximum size, in bytes, of the value of an attribute.
	MaxXattr = 64 << 10
	// MaxLinks bounds the links of an inode.
	MaxLinks = 1 << 20
	// MaxTarget is the maximum length, in bytes, of the target of a symlink.
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

// ModeSetGID is the set-group-id bit: entries created in a directory with it inherit the
// directory's group.
const ModeSetGID Mode = 0o2000

// ModeSticky is the sticky bit: in a directory with it, users may remove and rename only
// their own entries.
const ModeSticky Mode = 0o1000

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

// RenameFlags modify Rename. The values are those of renameat2.
type RenameFlags uint32

// The flags of Rename. At most one may be set.
const (
	// NoReplace fails with ErrExist rather than replacing the new name.
	NoReplace RenameFlags = 1
	// Exchange swaps two names that both exist.
	Exchange RenameFlags = 2
)

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
}
