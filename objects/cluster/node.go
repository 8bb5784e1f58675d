package cluster

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
)

// Node is one incarnation of another node. Its methods ask it, or answer from
// what it has said within AttrTTL; they are the methods of objects.Store, for a
// user. Inode numbers are the node's own; its root is metadata.RootIno, and has
// the devices' directories alone.
//
// Errors, of all: those of the store there; ErrUnreachable, ErrStale, ErrDenied.
type Node struct{}

// Entry is one entry of a directory. Attr is nil where it has to be asked for.
type Entry struct {
	metadata.Entry
	Attr *objects.Attr
}

// Record is what is known of it.
func (n *Node) Record() members.Record { return members.Record{} }

// Gone says that the incarnation has left for good.
func (n *Node) Gone() bool { return true }

// Lookup finds a name.
func (n *Node) Lookup(context.Context, Cred, objects.Ino, string) (objects.Attr, error) {
	return objects.Attr{}, ErrUnreachable
}

// Attr returns an inode.
func (n *Node) Attr(context.Context, Cred, objects.Ino) (objects.Attr, error) {
	return objects.Attr{}, ErrUnreachable
}

// Dir is a directory that is read. One goroutine uses it at a time.
type Dir struct{}

// OpenDir begins to read a directory. It asks nothing yet.
func (n *Node) OpenDir(Cred, objects.Ino) *Dir { return &Dir{} }

// After returns entries behind a cookie, none at the end. It keeps the pages
// that came, so that going on costs no question, and begins anew at cookie 0.
func (d *Dir) After(context.Context, metadata.Cookie) ([]Entry, error) { return nil, ErrUnreachable }

// Create makes a file, directory, symlink or special file. The node's UID and
// GID are ignored: the user's are taken.
func (n *Node) Create(ctx context.Context, who Cred, dir objects.Ino, name string, in metadata.Node) (objects.Attr, error) {
	_, _, _, _, _ = ctx, who, dir, name, in
	return objects.Attr{}, ErrUnreachable
}

// Link adds a name.
func (n *Node) Link(ctx context.Context, who Cred, ino, dir objects.Ino, name string) (objects.Attr, error) {
	_, _, _, _, _ = ctx, who, ino, dir, name
	return objects.Attr{}, ErrUnreachable
}

// Unlink removes a name.
func (n *Node) Unlink(context.Context, Cred, objects.Ino, string) error { return ErrUnreachable }

// Rmdir removes an empty directory.
func (n *Node) Rmdir(context.Context, Cred, objects.Ino, string) error { return ErrUnreachable }

// Rename moves a name inside the node.
func (n *Node) Rename(context.Context, Cred, metadata.Rename) error { return ErrUnreachable }

// SetAttr changes attributes. With a file, its right to write covers a change
// of size; nil is none.
func (n *Node) SetAttr(ctx context.Context, who Cred, ino objects.Ino, c objects.Change, by *File) (objects.Attr, error) {
	_, _, _, _, _ = ctx, who, ino, c, by
	return objects.Attr{}, ErrUnreachable
}

// GetXattr reads an extended attribute.
func (n *Node) GetXattr(context.Context, Cred, objects.Ino, string) ([]byte, error) {
	return nil, ErrUnreachable
}

// ListXattr lists their names.
func (n *Node) ListXattr(context.Context, Cred, objects.Ino) ([]string, error) {
	return nil, ErrUnreachable
}

// SetXattr sets one.
func (n *Node) SetXattr(ctx context.Context, who Cred, ino objects.Ino, x Xattr) error {
	_, _, _, _ = ctx, who, ino, x
	return ErrUnreachable
}

// Xattr is one to be set.
type Xattr struct {
	Name  string
	Value []byte
	Flags metadata.XattrFlags
}

// RemoveXattr removes one.
func (n *Node) RemoveXattr(context.Context, Cred, objects.Ino, string) error { return ErrUnreachable }

// Usage is the device that holds an inode, in bytes.
type Usage struct {
	Device            string
	Total, Free, Used uint64
}

// StatFS tells of the device that holds an inode; for the root of all together.
func (n *Node) StatFS(context.Context, Cred, objects.Ino) (Usage, error) {
	return Usage{}, ErrUnreachable
}
