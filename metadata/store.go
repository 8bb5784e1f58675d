package metadata

import (
	"context"
	"errors"
)

var errTODO = errors.New("metadata: not built yet")

// Store is the namespace.
type Store struct{ kv KV }

// Open opens a store.
func Open(ctx context.Context, kv KV, opts Options) (*Store, error) { return nil, errTODO }

// Close closes the store and its KV.
func (s *Store) Close() error { return errTODO }

// Generation returns the generation of the store.
func (s *Store) Generation() Generation { return 0 }

// NextIno returns the lowest number that has not been given yet.
func (s *Store) NextIno() Ino { return 0 }

// EnsureDevice makes the root directory of a device.
func (s *Store) EnsureDevice(ctx context.Context, name DeviceName, mode Mode, uid, gid uint32) (Inode, error) {
	return Inode{}, errTODO
}

// Devices lists.
func (s *Store) Devices(ctx context.Context) ([]DeviceRecord, error) { return nil, errTODO }

// SetDeviceEpoch records.
func (s *Store) SetDeviceEpoch(ctx context.Context, name DeviceName, e Epoch) error { return errTODO }

// DeviceEpoch tells.
func (s *Store) DeviceEpoch(ctx context.Context, name DeviceName) (Epoch, error) { return 0, errTODO }

// Get reads an inode.
func (s *Store) Get(ctx context.Context, ino Ino) (Inode, error) { return Inode{}, errTODO }

// Lookup finds a name.
func (s *Store) Lookup(ctx context.Context, parent Ino, name string) (Inode, error) {
	return Inode{}, errTODO
}

// Create makes an inode of any type.
func (s *Store) Create(ctx context.Context, parent Ino, name string, n Node) (Inode, error) {
	return Inode{}, errTODO
}

// Link adds a name.
func (s *Store) Link(ctx context.Context, ino, parent Ino, name string) (Inode, error) {
	return Inode{}, errTODO
}

// Unlink removes a name.
func (s *Store) Unlink(ctx context.Context, parent Ino, name string) (Inode, error) {
	return Inode{}, errTODO
}

// Rmdir removes a directory.
func (s *Store) Rmdir(ctx context.Context, parent Ino, name string) (Inode, error) {
	return Inode{}, errTODO
}

// Rename moves a name.
func (s *Store) Rename(ctx context.Context, r Rename) (RenameResult, error) {
	return RenameResult{}, errTODO
}

// MoveDevice moves a name to another device.
func (s *Store) MoveDevice(ctx context.Context, r Rename, device DeviceName, epoch Epoch, maps []Mapping) (RenameResult, error) {
	return RenameResult{}, errTODO
}

// Update changes an inode.
func (s *Store) Update(ctx context.Context, ino Ino, fn func(*Inode) error) (Inode, error) {
	return Inode{}, errTODO
}

// ReadDir lists.
func (s *Store) ReadDir(ctx context.Context, dir Ino, after Cookie, limit int) ([]Entry, error) {
	return nil, errTODO
}

// GetXattr reads an attribute.
func (s *Store) GetXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	return nil, errTODO
}

// SetXattr writes an attribute.
func (s *Store) SetXattr(ctx context.Context, ino Ino, name string, value []byte, flags XattrFlags) error {
	return errTODO
}

// ListXattr lists names in order.
func (s *Store) ListXattr(ctx context.Context, ino Ino) ([]string, error) { return nil, errTODO }

// RemoveXattr removes an attribute.
func (s *Store) RemoveXattr(ctx context.Context, ino Ino, name string) error { return errTODO }

// BindKey gives an inode a key.
func (s *Store) BindKey(ctx context.Context, ino Ino, key string) error { return errTODO }

// KeyIno tells which inode carries a key.
func (s *Store) KeyIno(ctx context.Context, key string) (Ino, error) { return 0, errTODO }

// Keys lists keys.
func (s *Store) Keys(ctx context.Context, after string, limit int) ([]KeyEntry, error) {
	return nil, errTODO
}

// PathOf builds a path.
func (s *Store) PathOf(ctx context.Context, ino Ino) (string, error) { return "", errTODO }

// SaveContent replaces the mappings and updates the inode.
func (s *Store) SaveContent(ctx context.Context, ino Ino, fn func(*Inode) error, maps []Mapping) (Inode, error) {
	return Inode{}, errTODO
}

// Mappings lists, ordered by FileOff.
func (s *Store) Mappings(ctx context.Context, ino Ino) ([]Mapping, error) { return nil, errTODO }

// DropDevice removes all of a device.
func (s *Store) DropDevice(ctx context.Context, name DeviceName, keepTree bool) (int, error) {
	return 0, errTODO
}

// Walk visits all inodes.
func (s *Store) Walk(ctx context.Context, fn func(Inode) error) error { return errTODO }

// Check finds contradictions.
func (s *Store) Check(ctx context.Context, fn func(Problem)) error { return errTODO }

// Repair mends one.
func (s *Store) Repair(ctx context.Context, p Problem) error { return errTODO }
