package objects

import (
	"context"
	"os"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
)

// Options are what a store is made of.
type Options struct {
	// Meta keeps the records. Required. The store does not close it.
	Meta *metadata.Store
	// Devices hold the bytes. The store does not close them.
	Devices []devices.Device
	// Engine moves the bytes. Required. The store does not close it.
	Engine *transport.Engine
	// DirMode, UID and GID are what a device's root directory gets when it is
	// made. DirMode 0 is 0755.
	DirMode metadata.Mode
	UID     uint32
	GID     uint32
	// Logger gets life-cycle messages; nil is silent.
	Logger *zap.Logger
}

// Store is the object store.
type Store struct{ opts Options }

// Open recovers the records of the devices and starts the store.
func Open(ctx context.Context, o Options) (*Store, error) { return &Store{opts: o}, nil }

// CloseOptions say what a store leaves behind.
type CloseOptions struct {
	// Keep leaves the host tier and all records for the next Open.
	Keep bool
}

// Close writes what is pending. Without Keep it removes every object.
func (s *Store) Close(ctx context.Context, o CloseOptions) error { return nil }

// Lookup finds a name.
func (s *Store) Lookup(ctx context.Context, parent Ino, name string) (Attr, error) {
	return Attr{}, ErrUnsupported
}

// Attr returns an inode as it is now, also one that is unlinked but referenced.
func (s *Store) Attr(ctx context.Context, ino Ino) (Attr, error) { return Attr{}, ErrUnsupported }

// SetAttr changes attributes, and the size with the content.
func (s *Store) SetAttr(ctx context.Context, ino Ino, c Change) (Attr, error) {
	return Attr{}, ErrUnsupported
}

// Create makes a file, directory, symlink or special file. The new inode has
// one reference of the kernel's already: see Reference.
func (s *Store) Create(ctx context.Context, parent Ino, name string, n metadata.Node) (Attr, error) {
	return Attr{}, ErrUnsupported
}

// Link adds a name to an inode.
func (s *Store) Link(ctx context.Context, ino, parent Ino, name string) (Attr, error) {
	return Attr{}, ErrUnsupported
}

// Unlink removes a name. Content goes with the last name and the last handle.
func (s *Store) Unlink(ctx context.Context, parent Ino, name string) error { return ErrUnsupported }

// Rmdir removes an empty directory.
func (s *Store) Rmdir(ctx context.Context, parent Ino, name string) error { return ErrUnsupported }

// Rename moves a name. Between devices it copies the content device to
// device and is refused with metadata.ErrCrossDevice for a directory, a file
// with several names, one that is open, and an exchange.
func (s *Store) Rename(ctx context.Context, r metadata.Rename) error { return ErrUnsupported }

// ReadDir lists a directory behind a cookie.
func (s *Store) ReadDir(ctx context.Context, dir Ino, after metadata.Cookie, limit int) ([]metadata.Entry, error) {
	return nil, ErrUnsupported
}

// Reference counts n references that the kernel holds to an inode. While
// there are any, the attributes of an inode without names can still be asked
// for.
func (s *Store) Reference(ino Ino, n uint64) {}

// Forget drops n references of the kernel's.
func (s *Store) Forget(ino Ino, n uint64) {}

// OpenFile opens a regular file's content.
func (s *Store) OpenFile(ctx context.Context, ino Ino) (*File, error) { return nil, ErrUnsupported }

// GetXattr reads an extended attribute by its full name ("user.a", "user.hmc.state").
func (s *Store) GetXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	return nil, ErrUnsupported
}

// SetXattr sets one.
func (s *Store) SetXattr(ctx context.Context, ino Ino, name string, value []byte, flags metadata.XattrFlags) error {
	return ErrUnsupported
}

// ListXattr lists the names, those of user.hmc.* that have a value included.
func (s *Store) ListXattr(ctx context.Context, ino Ino) ([]string, error) { return nil, ErrUnsupported }

// RemoveXattr removes one.
func (s *Store) RemoveXattr(ctx context.Context, ino Ino, name string) error { return ErrUnsupported }

// Keys lists the keys behind after, in order.
func (s *Store) Keys(ctx context.Context, after string, limit int) ([]metadata.KeyEntry, error) {
	return nil, ErrUnsupported
}

// KeyPath returns the path, from the root of the mount, of the object that
// carries the key ("sim0/a/b").
func (s *Store) KeyPath(ctx context.Context, key string) (string, error) { return "", ErrUnsupported }

// KeyIno returns the inode that carries the key.
func (s *Store) KeyIno(ctx context.Context, key string) (Ino, error) { return 0, ErrUnsupported }

// Devices tells the state of every device.
func (s *Store) Devices(ctx context.Context) ([]DeviceStatus, error) { return nil, ErrUnsupported }

// DeviceOf tells the state of the device whose tree holds the inode.
func (s *Store) DeviceOf(ctx context.Context, ino Ino) (DeviceStatus, error) {
	return DeviceStatus{}, ErrUnsupported
}

// CopyRange copies n bytes between two objects, on whatever devices they
// are, and returns how many it copied. It stops at the source's end, and
// short, without an error, when the context ends after some were moved.
func (s *Store) CopyRange(ctx context.Context, r CopyRange) (uint64, error) { return 0, ErrUnsupported }

// CopyRange names the bytes of one copy between objects.
type CopyRange struct {
	Dst    *File
	DstOff uint64
	Src    *File
	SrcOff uint64
	N      uint64
	// KillPriv clears the destination's set-id bits first.
	KillPriv bool
}

// File is an open object. Its methods may be called from any goroutine.
type File struct{}

// Ino returns the object's number.
func (f *File) Ino() Ino { return 0 }

// ReadAt copies bytes out. It reads fewer than len(p) only at the end.
func (f *File) ReadAt(ctx context.Context, p []byte, off uint64) (int, error) {
	return 0, ErrUnsupported
}

// Views shows n bytes in place where the device's memory can be mapped; else
// the error is devices.ErrUnsupported.
func (f *File) Views(ctx context.Context, off uint64, n int) (Views, error) {
	return Views{}, ErrUnsupported
}

// WriteAt copies bytes in and returns how many. Fewer than len(p) without an
// error means that the device is full, or the context ended, after those.
func (f *File) WriteAt(ctx context.Context, p []byte, w Write) (int, error) {
	return 0, ErrUnsupported
}

// Allocate is fallocate(2).
func (f *File) Allocate(ctx context.Context, mode AllocateMode, off, n uint64) error {
	return ErrUnsupported
}

// Seek finds data or a hole at or behind off; ErrNoData beyond the end.
func (f *File) Seek(ctx context.Context, off uint64, w Whence) (uint64, error) {
	return 0, ErrUnsupported
}

// Sync writes the object's record.
func (f *File) Sync(ctx context.Context) error { return ErrUnsupported }

// Version changes before and after every change of the content: bytes read
// between two equal versions are the content at the second.
func (f *File) Version() uint64 { return 0 }

// Size returns the present size in bytes.
func (f *File) Size() uint64 { return 0 }

// Backing returns the host-tier file that holds the content, for the kernel
// to serve by itself; ok is false for objects in device memory. The file
// stays the object's.
func (f *File) Backing() (backing *os.File, ok bool) { return nil, false }

// Close ends the handle and writes the object's record if it changed.
func (f *File) Close(ctx context.Context) error { return nil }
