package metadata

import (
	"errors"
	"fmt"
)

// Errors of the key-value seam.
var (
	// ErrNoKey says that the store holds no such key.
	ErrNoKey = errors.New("metadata: no such key")
	// ErrReadOnly says that a transaction that only views was asked to write.
	ErrReadOnly = errors.New("metadata: transaction is read-only")
	// ErrClosed says that the store has been closed.
	ErrClosed = errors.New("metadata: store is closed")
	// ErrTooLarge says that a value, or a whole transaction, is larger than
	// what can be stored.
	ErrTooLarge = errors.New("metadata: too large")
	// ErrNoSpace says that the records' file system has no space for a change.
	ErrNoSpace = errors.New("metadata: no space for records")
)

// Errors of the namespace.
var (
	// ErrNotExist says that there is no such name, inode, key or device.
	ErrNotExist = errors.New("metadata: does not exist")
	// ErrExist says that the name, the key or the attribute is taken.
	ErrExist = errors.New("metadata: exists already")
	// ErrNotDir says that a directory was needed.
	ErrNotDir = errors.New("metadata: not a directory")
	// ErrIsDir says that something other than a directory was needed.
	ErrIsDir = errors.New("metadata: is a directory")
	// ErrNotEmpty says that a directory still has entries.
	ErrNotEmpty = errors.New("metadata: directory not empty")
	// ErrNameTooLong says that a name has more than MaxName bytes.
	ErrNameTooLong = errors.New("metadata: name too long")
	// ErrInvalidName says that a name is empty, ".", "..", or has a slash or
	// a zero byte.
	ErrInvalidName = errors.New("metadata: invalid name")
	// ErrInvalid says that the request makes no sense, such as moving a
	// directory into itself.
	ErrInvalid = errors.New("metadata: invalid argument")
	// ErrPermission says that the entry belongs to hmcfs: the root holds the
	// devices' directories, which users neither make nor move nor remove.
	ErrPermission = errors.New("metadata: belongs to hmcfs")
	// ErrCrossDevice says that a link or a move would leave its device.
	ErrCrossDevice = errors.New("metadata: crosses devices")
	// ErrTooManyLinks says that an inode has MaxLinks links.
	ErrTooManyLinks = errors.New("metadata: too many links")
	// ErrNoXattr says that the inode has no such extended attribute.
	ErrNoXattr = errors.New("metadata: no such attribute")
	// ErrRange says that the name of an attribute is empty or has more than
	// MaxName bytes.
	ErrRange = errors.New("metadata: attribute name out of range")
	// ErrInvalidKey says that a key has a byte outside the permitted ones, or
	// more than MaxKey bytes.
	ErrInvalidKey = errors.New("metadata: invalid key")
	// ErrFull says that a directory cannot take this name: too many others
	// fall on the same place of its index.
	ErrFull = errors.New("metadata: directory is full")
	// ErrQuota says that a user has as much as Limits give one.
	ErrQuota = errors.New("metadata: limit of the user reached")
	// ErrXattrSpace says that an inode has as many extended attributes, or bytes
	// of them, as Limits give one.
	ErrXattrSpace = errors.New("metadata: no room for the attribute")
	// ErrChanged says that what is to be repaired is not as it was found.
	ErrChanged = errors.New("metadata: changed since it was checked")
)

// Errors of the stored form.
var (
	// ErrNewer says that the records were written by a newer hmcfs.
	ErrNewer = errors.New("metadata: written by a newer version")
	// ErrCorrupt says that a record cannot be understood.
	ErrCorrupt = errors.New("metadata: corrupt record")
)

// VersionError tells which version was found where, and up to which this
// program understands. It matches ErrNewer.
type VersionError struct {
	What      string // which record: "superblock", "inode", …
	Found     uint64
	Supported uint64
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("metadata: %s has format version %d, but this hmcfs"+
		" understands versions up to %d only", e.What, e.Found, e.Supported)
}

// Is says that a VersionError is ErrNewer.
func (e *VersionError) Is(target error) bool { return target == ErrNewer }
