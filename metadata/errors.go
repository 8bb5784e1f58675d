package metadata

import (
	"errors"
	"fmt"
)

// Errors of a KV.
var (
	// ErrNoKey reports that the store has no such key.
	ErrNoKey = errors.New("metadata: no such key")
	// ErrReadOnly reports a write in a read-only transaction.
	ErrReadOnly = errors.New("metadata: transaction is read-only")
	// ErrClosed reports that the store has been closed.
	ErrClosed = errors.New("metadata: store is closed")
	// ErrTooLarge reports that a value, or a whole transaction, is too large to be stored.
	ErrTooLarge = errors.New("metadata: too large")
	// ErrNoSpace reports that the records' file system has no space for a change.
	ErrNoSpace = errors.New("metadata: no space left for records")
)

// Errors of the namespace.
var (
	// ErrNotExist reports that there is no such name, inode, key or device.
	ErrNotExist = errors.New("metadata: does not exist")
	// ErrExist reports that the name, key or attribute exists already.
	ErrExist = errors.New("metadata: exists already")
	// ErrNotDir reports that an inode is not a directory where one is required.
	ErrNotDir = errors.New("metadata: not a directory")
	// ErrIsDir reports that an inode is a directory where none is allowed.
	ErrIsDir = errors.New("metadata: is a directory")
	// ErrNotEmpty reports that a directory still has entries.
	ErrNotEmpty = errors.New("metadata: directory not empty")
	// ErrNameTooLong reports that a name has more than MaxName bytes.
	ErrNameTooLong = errors.New("metadata: name too long")
	// ErrInvalidName reports that a name is empty, ".", "..", or contains a slash or a zero
	// byte.
	ErrInvalidName = errors.New("metadata: invalid name")
	// ErrInvalid reports an invalid request, such as moving a directory into itself.
	ErrInvalid = errors.New("metadata: invalid argument")
	// ErrPermission reports that the entry is managed by hmcfs: the root contains the
	// devices' directories, which users can't create, move or remove.
	ErrPermission = errors.New("metadata: belongs to hmcfs")
	// ErrCrossDevice reports a link or move to another device.
	ErrCrossDevice = errors.New("metadata: crosses devices")
	// ErrTooManyLinks reports that an inode has MaxLinks links.
	ErrTooManyLinks = errors.New("metadata: too many links")
	// ErrNoXattr reports that the inode has no such extended attribute.
	ErrNoXattr = errors.New("metadata: no such attribute")
	// ErrRange reports that the name of an attribute is empty or has more than MaxName
	// bytes.
	ErrRange = errors.New("metadata: attribute name out of range")
	// ErrInvalidKey reports that a key contains a forbidden byte, or has more than MaxKey
	// bytes.
	ErrInvalidKey = errors.New("metadata: invalid key")
	// ErrFull reports that a directory cannot add this name: too many others have the same
	// hash.
	ErrFull = errors.New("metadata: directory is full")
	// ErrQuota reports that a user has reached a limit of Limits.
	ErrQuota = errors.New("metadata: user limit reached")
	// ErrXattrSpace reports that an inode has as many extended attributes, or bytes of
	// them, as Limits allow.
	ErrXattrSpace = errors.New("metadata: no space for the attribute")
	// ErrChanged reports that the problem to be repaired has changed since it was found.
	ErrChanged = errors.New("metadata: changed since it was checked")
)

// Errors of the stored form.
var (
	// ErrNewer reports that the records were written by a newer hmcfs.
	ErrNewer = errors.New("metadata: written by a newer version")
	// ErrCorrupt reports that a record is invalid.
	ErrCorrupt = errors.New("metadata: corrupt record")
)

// VersionError reports the version that was found in a record, and the highest one that
// this program supports. It matches ErrNewer.
type VersionError struct {
	What      string // which record: "superblock", "inode", …
	Found     uint64
	Supported uint64
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("metadata: %s has format version %d, but this hmcfs"+
		" supports versions up to %d only", e.What, e.Found, e.Supported)
}

// Is reports whether target is ErrNewer.
func (e *VersionError) Is(target error) bool { return target == ErrNewer }

// corruptIfMissing turns ErrNoKey, for a record that must exist, into ErrCorrupt.
func corruptIfMissing(err error, what string) error {
	if errors.Is(err, ErrNoKey) {
		return fmt.Errorf("%w: %s: missing", ErrCorrupt, what)
	}
	return err
}
