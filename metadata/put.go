package metadata

import (
	"context"
	"errors"
)

// PublishIno is the directory publish/. It is in every store, under no name in
// the root, and belongs to no device: a file in it stays on its own. Only
// Publish brings a file in, Put makes one in it, and Rename or MoveDevice takes
// one out, to a directory of its device or of another.
const PublishIno Ino = 16

// NewFile is one file that Put makes.
type NewFile struct {
	// Ino is of NewInos, so that content could be made under it before.
	Ino  Ino
	Name string
	// Key is what the file carries; empty for none.
	Key string
	// Node is a regular file's.
	Node Node
	// Device is where the content is; where it is empty, the directory's.
	Device    DeviceName
	Size      uint64
	Allocated uint64
	Epoch     Epoch
	Path      string
	// Xattrs are set on the file, by full name.
	Xattrs map[string][]byte
	// Binding, where it is not nil, makes the file bound, as Bind does.
	Binding []byte
	// Maps are the mappings of the content, in any order.
	Maps []Mapping
	// Expires is when the file ends; zero is never.
	Expires Timespec
	// Replace lets the file take the name, and the key, of others: the one that
	// has the name in the directory loses it, and any other one that carries the
	// key loses that.
	Replace bool
}

// PutResult is what became of one file of Put.
type PutResult struct {
	Inode Inode
	// Replaced is the inode that had the name, as it is after; when its Nlink
	// is 0 its records are gone. Nil when there was none.
	Replaced *Inode
	// Unkeyed is the inode, under another name, that the key was taken from; 0
	// for none.
	Unkeyed Ino
	// Err is why the file was not made: ErrExist for a name or a key that is
	// taken, ErrIsDir for a name that is a directory's.
	Err error
}

// NewInos draws n inode numbers for Put.
func (s *Store) NewInos(ctx context.Context, n int) ([]Ino, error) { return nil, errNotBuilt }

// Put makes many files in one directory, in few transactions: each file is
// made whole or not at all. A file that can't be made hinders no other one.
//
// Errors: ErrNotExist and ErrNotDir of the directory, and those of the KV; the
// results before them stand, and the others have the error.
func (s *Store) Put(ctx context.Context, dir Ino, files []NewFile) ([]PutResult, error) {
	return make([]PutResult, len(files)), errNotBuilt
}

// EnsureDir returns a directory's directory of a name, and makes it where it is
// not there, with a mode and an owner.
//
// Errors: those of Create; ErrNotDir when the name is something else's.
func (s *Store) EnsureDir(ctx context.Context, parent Ino, name string, n Node) (Inode, error) {
	return Inode{}, errNotBuilt
}

// Publish moves a regular file with one link into PublishIno under a new name,
// as Rename does with NoReplace. It stays on its device, and loses its key.
//
// Errors: those of Rename; ErrExist when the name is taken; ErrIsDir;
// ErrInvalid for what is no regular file; ErrTooManyLinks.
func (s *Store) Publish(ctx context.Context, parent Ino, name, newName string) (Inode, error) {
	return Inode{}, errNotBuilt
}

// Take notes that a file in PublishIno is received: what is left to do is its
// removal, which the next run does if this one dies before. It is done once:
// the second time is ErrNotExist.
//
// Errors: ErrNotExist, also for a file elsewhere.
func (s *Store) Take(ctx context.Context, ino Ino) error { return errNotBuilt }

// Expire sets when a regular file ends; zero is never. The inode's ctime
// changes.
//
// Errors: ErrNotExist; ErrInvalid for what is no regular file.
func (s *Store) Expire(ctx context.Context, ino Ino, at Timespec) error { return errNotBuilt }

// Expired lists files whose time was over at a moment, the oldest first, at
// most limit, and tells when the next one's is that is not listed; zero for
// none.
func (s *Store) Expired(ctx context.Context, now Timespec, limit int) (over []Ino, next Timespec, err error) {
	return nil, Timespec{}, errNotBuilt
}

var errNotBuilt = errors.New("metadata: not built")
