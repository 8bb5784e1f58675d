package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// Tree is a hierarchy of files, by inode numbers: the store of this node (Local), one of
// another node, or the tree of a mount, which has both.
//
// Each method acts for a caller. The store of this node checks none of the caller's
// permissions: the kernel has done that. Another node checks them again, with the
// caller's ids as they are mapped there.
//
// Methods may be called from any goroutine. A context ends a call that waits for another
// node, which has carried it out or not then; changes of names here are not interrupted.
// Errors are those of the
// store, and for files of another node those of package cluster, of which ErrUnreachable
// means that the node did not answer, and ErrStale that the inode is gone there.
type Tree interface {
	Names
	Inodes
	Opener
}

// Names finds and changes the entries of directories.
type Names interface {
	Lookup(ctx context.Context, who Caller, dir Ino, name string) (Attr, error)
	// OpenDir begins to read a directory.
	OpenDir(ctx context.Context, who Caller, dir Ino) (Dir, error)
	// Create makes an inode of any type, which belongs to the caller.
	Create(ctx context.Context, who Caller, dir Ino, name string, n metadata.Node) (Attr, error)
	Link(ctx context.Context, who Caller, ino, dir Ino, name string) (Attr, error)
	Unlink(ctx context.Context, who Caller, dir Ino, name string) error
	Rmdir(ctx context.Context, who Caller, dir Ino, name string) error
	// Rename moves a name. It returns the regular file of this node that may have
	// another device now; 0 is none.
	Rename(ctx context.Context, who Caller, r metadata.Rename) (moved Ino, err error)
}

// Inodes reads and changes what inodes have.
type Inodes interface {
	Attr(ctx context.Context, who Caller, ino Ino) (Attr, error)
	// SetAttr changes attributes. A time of UTIME_NOW nanoseconds is the present. An open
	// file of the inode, nil for none, gives the right to change the size.
	SetAttr(ctx context.Context, who Caller, ino Ino, c Change, by OpenFile) (Attr, error)
	GetXattr(ctx context.Context, who Caller, ino Ino, name string) ([]byte, error)
	ListXattr(ctx context.Context, who Caller, ino Ino) ([]string, error)
	SetXattr(ctx context.Context, who Caller, ino Ino, x Xattr) error
	RemoveXattr(ctx context.Context, who Caller, ino Ino, name string) error
	// StatFS returns the use of the device that an inode is on; for the root, of all.
	StatFS(ctx context.Context, who Caller, ino Ino) (devices.Usage, error)
}

// Opener opens files.
type Opener interface {
	// Open opens a regular file, which the caller closes.
	//
	// Errors: metadata.ErrIsDir; ErrInvalid for what is neither.
	Open(ctx context.Context, who Caller, ino Ino, want Permission) (OpenFile, error)
	// CreateOpen makes a regular file and opens it. With Existing, a regular file that
	// has the name already is opened where its owner checks that the caller may.
	CreateOpen(ctx context.Context, who Caller, dir Ino, name string, n NewFile) (Attr, OpenFile, error)
}

// NewFile describes what CreateOpen makes.
type NewFile struct {
	Mode     metadata.Mode // the permission bits
	Want     Permission
	Existing bool
}

// Xattr is an extended attribute that is to be set.
type Xattr struct {
	Name  string
	Value []byte
	Flags metadata.XattrFlags
}

// FirstCookie is the lowest cookie of an entry. What is below is free for the entries that
// a mount adds to a directory.
const FirstCookie metadata.Cookie = 256

// Dir is a directory that is being read, by one goroutine at a time.
type Dir interface {
	// After returns entries behind a cookie, in the order of their cookies: up to limit,
	// or as many as the directory's owner sends at a time; none is the end. A directory
	// that has been removed has no entries.
	After(ctx context.Context, at metadata.Cookie, limit int) ([]metadata.Entry, error)
}

// OpenFile is an open regular file. Its methods may be called from any goroutine. What
// only some files can do is found by assertion: *File has it all.
type OpenFile interface {
	FileState
	// Peek reads len(p) bytes, fewer only at the end, and is no access; Accessed notes one.
	Peek(ctx context.Context, p []byte, off uint64) (int, error)
	Accessed()
	WriteAt(ctx context.Context, p []byte, w Write) (int, error)
	Allocate(ctx context.Context, mode AllocateMode, off, n uint64) error
	Seek(ctx context.Context, off uint64, w Whence) (uint64, error)
	Sync(ctx context.Context) error
	Close(ctx context.Context) error
}

// FileState can be read of an open file without asking for it.
type FileState interface {
	// Ino is the inode's number in the tree that has opened it.
	Ino() Ino
	// Size returns the size in bytes; of another node's file, as it was last told.
	Size() uint64
	// Version changes with the content. Foreign reports whether the content also changes
	// without that, as memory of another process does.
	Version() uint64
	Foreign() bool
}

var (
	_ OpenFile = (*File)(nil)
	_ Tree     = Local{}
)

// Local is the tree of this node's store.
type Local struct{ *Store }

// uninterrupted returns a context that does not end: a change of the namespace is short,
// and is carried out whole or not at all.
func uninterrupted(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Lookup is Names'.
func (l Local) Lookup(ctx context.Context, _ Caller, dir Ino, name string) (Attr, error) {
	return l.Store.Lookup(uninterrupted(ctx), dir, name)
}

// Create is Names'.
func (l Local) Create(ctx context.Context, who Caller, dir Ino, name string, n metadata.Node) (Attr, error) {
	n.UID, n.GID = who.UID, who.GID
	return l.Store.Create(uninterrupted(ctx), dir, name, n)
}

// Link is Names'.
func (l Local) Link(ctx context.Context, _ Caller, ino, dir Ino, name string) (Attr, error) {
	return l.Store.Link(uninterrupted(ctx), ino, dir, name)
}

// Unlink is Names'.
func (l Local) Unlink(ctx context.Context, _ Caller, dir Ino, name string) error {
	return l.Store.Unlink(uninterrupted(ctx), dir, name)
}

// Rmdir is Names'.
func (l Local) Rmdir(ctx context.Context, _ Caller, dir Ino, name string) error {
	return l.Store.Rmdir(uninterrupted(ctx), dir, name)
}

// Rename is Names'. A move between devices ends with the context, and has changed
// nothing then.
func (l Local) Rename(ctx context.Context, _ Caller, r metadata.Rename) (moved Ino, err error) {
	if err = l.Store.Rename(ctx, r); err != nil || r.From == r.To {
		return 0, err
	}
	a, err := l.Store.Lookup(uninterrupted(ctx), r.To, r.NewName)
	if err != nil || !a.IsRegular() {
		return 0, nil // it has gone on, or has no device to change
	}
	return a.Ino, nil
}

// Attr is Inodes'.
func (l Local) Attr(ctx context.Context, _ Caller, ino Ino) (Attr, error) {
	return l.attrs.get(uninterrupted(ctx), ino)
}

// SetAttr is Inodes'.
func (l Local) SetAttr(ctx context.Context, _ Caller, ino Ino, c Change, _ OpenFile) (Attr, error) {
	c.resolveNow()
	return l.Store.SetAttr(uninterrupted(ctx), ino, c)
}

// GetXattr is Inodes'.
func (l Local) GetXattr(ctx context.Context, _ Caller, ino Ino, name string) ([]byte, error) {
	return l.Store.GetXattr(uninterrupted(ctx), ino, name)
}

// ListXattr is Inodes'.
func (l Local) ListXattr(ctx context.Context, _ Caller, ino Ino) ([]string, error) {
	return l.Store.ListXattr(uninterrupted(ctx), ino)
}

// SetXattr is Inodes'. It keeps the value.
func (l Local) SetXattr(ctx context.Context, who Caller, ino Ino, x Xattr) error {
	if x.Name == XattrTTL {
		return l.SetTTL(uninterrupted(ctx), who, ino, string(x.Value), x.Flags)
	}
	return l.Store.SetXattr(uninterrupted(ctx), ino, x.Name, x.Value, x.Flags)
}

// RemoveXattr is Inodes'.
func (l Local) RemoveXattr(ctx context.Context, _ Caller, ino Ino, name string) error {
	return l.Store.RemoveXattr(uninterrupted(ctx), ino, name)
}

// StatFS is Inodes'.
func (l Local) StatFS(ctx context.Context, _ Caller, ino Ino) (devices.Usage, error) {
	if ino != metadata.RootIno && ino != metadata.PublishIno {
		d, err := l.DeviceOf(uninterrupted(ctx), ino)
		return d.Usage, err
	}
	all, err := l.Devices(uninterrupted(ctx))
	var sum devices.Usage
	for i := range all {
		sum.Total += all[i].Usage.Total
		sum.Used += all[i].Usage.Used
		sum.Free += all[i].Usage.Free
	}
	return sum, err
}

// Open is Opener's. The kernel has checked what is wanted.
func (l Local) Open(ctx context.Context, who Caller, ino Ino, _ Permission) (OpenFile, error) {
	f, err := l.OpenAs(uninterrupted(ctx), ino, who)
	if err == nil {
		return f, nil
	}
	if a, none := l.attrs.get(uninterrupted(ctx), ino); none == nil && a.IsDir() {
		err = fmt.Errorf("open inode %d: %w", ino, metadata.ErrIsDir)
	}
	return nil, err
}

// CreateOpen is Opener's. It opens no file that existed, as the kernel has not checked
// whether the caller may.
func (l Local) CreateOpen(ctx context.Context, who Caller, dir Ino, name string, n NewFile) (Attr, OpenFile, error) {
	a, err := l.Create(ctx, who, dir, name, metadata.Node{Mode: metadata.TypeRegular | n.Mode.Perm()})
	if err != nil {
		return Attr{}, nil, err
	}
	f, err := l.Open(ctx, who, a.Ino, n.Want)
	if err != nil {
		return Attr{}, nil, errors.Join(err, l.Unlink(ctx, who, dir, name))
	}
	return a, f, nil
}

// OpenDir is Names'. It asks nothing yet.
func (l Local) OpenDir(_ context.Context, _ Caller, dir Ino) (Dir, error) {
	return localDir{l.Store, dir}, nil
}

// localDir is a Dir.
type localDir struct {
	store *Store
	ino   Ino
}

// After is Dir's.
func (d localDir) After(ctx context.Context, at metadata.Cookie, limit int) ([]metadata.Entry, error) {
	entries, err := d.store.ReadDir(uninterrupted(ctx), d.ino, at, limit)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}
