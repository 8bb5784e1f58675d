package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// Tree is a hierarchy of files, identified by inode numbers: the store of this node
// (Local), that of another node, or the tree of a mount, which contains both.
//
// Each method acts for a caller. The store of this node does not check the caller's
// permissions, since the kernel has done that, except whether it may remove or move a name of a
// sticky directory. Another node checks all of them again, with the caller's ids as they are
// mapped there.
//
// Methods may be called from any goroutine. The end of the context ends a call that
// waits for another node, which may or may not have executed it; changes of names on
// this node are not interrupted. Errors are those of the store, and for files of
// another node those of package cluster, of which ErrUnreachable means that the node
// did not answer, and ErrStale that the inode no longer exists there.
type Tree interface {
	Names
	Inodes
	Opener
}

// Names finds and changes the entries of directories.
type Names interface {
	Lookup(ctx context.Context, who Caller, dir Ino, name string) (Attr, error)
	// OpenDir opens a directory for reading.
	OpenDir(ctx context.Context, who Caller, dir Ino) (Dir, error)
	// Create makes an inode of any type, which belongs to the caller.
	Create(ctx context.Context, who Caller, dir Ino, name string, n metadata.Node) (Attr, error)
	Link(ctx context.Context, who Caller, ino, dir Ino, name string) (Attr, error)
	Unlink(ctx context.Context, who Caller, dir Ino, name string) error
	Rmdir(ctx context.Context, who Caller, dir Ino, name string) error
	// Rename moves a name. It returns the regular file of this node whose device may have
	// changed; 0 is none.
	Rename(ctx context.Context, who Caller, r metadata.Rename) (moved Ino, err error)
}

// Inodes reads and changes the attributes of inodes.
type Inodes interface {
	Attr(ctx context.Context, who Caller, ino Ino) (Attr, error)
	// SetAttr changes attributes. A time whose nanoseconds are UTIME_NOW is set to the
	// present. by is an open file of the inode, which grants the right to change the size;
	// nil is none.
	SetAttr(ctx context.Context, who Caller, ino Ino, c Change, by OpenFile) (Attr, error)
	GetXattr(ctx context.Context, who Caller, ino Ino, name string) ([]byte, error)
	ListXattr(ctx context.Context, who Caller, ino Ino) ([]string, error)
	SetXattr(ctx context.Context, who Caller, ino Ino, x Xattr) error
	RemoveXattr(ctx context.Context, who Caller, ino Ino, name string) error
	// StatFS returns the usage of the device that an inode is on; for the root, the sum of
	// all.
	StatFS(ctx context.Context, who Caller, ino Ino) (devices.Usage, error)
}

// Opener opens files.
type Opener interface {
	// Open opens a regular file; the caller closes it.
	//
	// Errors: metadata.ErrIsDir; ErrInvalid for an inode that is neither.
	Open(ctx context.Context, who Caller, ino Ino, want Permission) (OpenFile, error)
	// CreateOpen makes a regular file and opens it. With Existing, an existing regular file
	// of that name is opened instead, if its node checks that the caller may.
	CreateOpen(ctx context.Context, who Caller, dir Ino, name string, n NewFile) (Attr, OpenFile, error)
}

// NewFile describes the file that CreateOpen makes.
type NewFile struct {
	Mode     metadata.Mode // the permission bits
	Want     Permission
	Existing bool
}

// Xattr is an extended attribute to be set.
type Xattr struct {
	Name  string
	Value []byte
	Flags metadata.XattrFlags
}

// FirstCookie is the lowest cookie of an entry. Lower values are free for the entries
// that a mount adds to a directory.
const FirstCookie metadata.Cookie = 256

// Dir is an open directory, used by one goroutine at a time.
type Dir interface {
	// After returns entries after a cookie, in the order of their cookies: up to limit, or
	// as many as the directory's node sends at a time; none is the end. A directory that
	// was removed has no entries.
	After(ctx context.Context, at metadata.Cookie, limit int) ([]metadata.Entry, error)
}

// OpenFile is an open regular file. Its methods may be called from any goroutine.
// Operations that only some files support are found by type assertion; *File supports
// all.
type OpenFile interface {
	FileState
	// Peek reads len(p) bytes, fewer only at the end, without recording an access; Accessed
	// records one.
	Peek(ctx context.Context, p []byte, off uint64) (int, error)
	Accessed()
	WriteAt(ctx context.Context, p []byte, w Write) (int, error)
	Allocate(ctx context.Context, mode AllocateMode, off, n uint64) error
	Seek(ctx context.Context, off uint64, w Whence) (uint64, error)
	Sync(ctx context.Context) error
	Close(ctx context.Context) error
}

// FileState is the state of an open file that is available without a request.
type FileState interface {
	// Ino returns the inode number in the tree that has opened the file.
	Ino() Ino
	// Size returns the size in bytes; for a file of another node, the one last reported.
	Size() uint64
	// Version changes with the content. Foreign reports whether the content can also change
	// without a new version, as memory of another process does.
	Version() uint64
	Foreign() bool
}

var (
	_ OpenFile = (*File)(nil)
	_ Tree     = Local{}
)

// Local implements Tree for the store of this node.
type Local struct{ *Store }

// uninterrupted returns a context that does not end: a change of the namespace is
// short, and is executed completely or not at all.
func uninterrupted(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Lookup implements Names.
func (l Local) Lookup(ctx context.Context, _ Caller, dir Ino, name string) (Attr, error) {
	return l.Store.Lookup(uninterrupted(ctx), dir, name)
}

// Create implements Names.
func (l Local) Create(ctx context.Context, who Caller, dir Ino, name string, n metadata.Node) (Attr, error) {
	n.UID, n.GID = who.UID, who.GID
	return l.Store.Create(uninterrupted(ctx), dir, name, n)
}

// Link implements Names.
func (l Local) Link(ctx context.Context, _ Caller, ino, dir Ino, name string) (Attr, error) {
	return l.Store.Link(uninterrupted(ctx), ino, dir, name)
}

// Unlink implements Names.
func (l Local) Unlink(ctx context.Context, who Caller, dir Ino, name string) error {
	return l.UnlinkAs(uninterrupted(ctx), who, dir, name)
}

// Rmdir implements Names.
func (l Local) Rmdir(ctx context.Context, who Caller, dir Ino, name string) error {
	return l.RmdirAs(uninterrupted(ctx), who, dir, name)
}

// Rename implements Names. A move between devices is interrupted when the context ends;
// then nothing has changed.
func (l Local) Rename(ctx context.Context, who Caller, r metadata.Rename) (moved Ino, err error) {
	if err = l.RenameAs(ctx, who, r); err != nil || r.From == r.To {
		return 0, err
	}
	a, err := l.Store.Lookup(uninterrupted(ctx), r.To, r.NewName)
	if err != nil || !a.IsRegular() {
		return 0, nil // it was moved or removed since, or has no device to change
	}
	return a.Ino, nil
}

// Attr implements Inodes.
func (l Local) Attr(ctx context.Context, _ Caller, ino Ino) (Attr, error) {
	return l.attrs.get(uninterrupted(ctx), ino)
}

// SetAttr implements Inodes.
func (l Local) SetAttr(ctx context.Context, _ Caller, ino Ino, c Change, _ OpenFile) (Attr, error) {
	c.resolveNow()
	return l.Store.SetAttr(uninterrupted(ctx), ino, c)
}

// GetXattr implements Inodes.
func (l Local) GetXattr(ctx context.Context, _ Caller, ino Ino, name string) ([]byte, error) {
	return l.Store.GetXattr(uninterrupted(ctx), ino, name)
}

// ListXattr implements Inodes.
func (l Local) ListXattr(ctx context.Context, _ Caller, ino Ino) ([]string, error) {
	return l.Store.ListXattr(uninterrupted(ctx), ino)
}

// SetXattr implements Inodes. It retains the value.
func (l Local) SetXattr(ctx context.Context, who Caller, ino Ino, x Xattr) error {
	if x.Name == XattrTTL {
		return l.SetTTL(uninterrupted(ctx), who, ino, string(x.Value), x.Flags)
	}
	return l.Store.SetXattr(uninterrupted(ctx), ino, x.Name, x.Value, x.Flags)
}

// RemoveXattr implements Inodes.
func (l Local) RemoveXattr(ctx context.Context, _ Caller, ino Ino, name string) error {
	return l.Store.RemoveXattr(uninterrupted(ctx), ino, name)
}

// StatFS implements Inodes.
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

// Open implements Opener. The kernel has checked the permissions.
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

// CreateOpen implements Opener. It does not open an existing file, since the kernel has
// not checked whether the caller may.
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

// OpenDir implements Names. It does not access the directory yet.
func (l Local) OpenDir(_ context.Context, _ Caller, dir Ino) (Dir, error) {
	return localDir{l.Store, dir}, nil
}

// localDir implements Dir for a directory of the local store.
type localDir struct {
	store *Store
	ino   Ino
}

// After implements Dir.
func (d localDir) After(ctx context.Context, at metadata.Cookie, limit int) ([]metadata.Entry, error) {
	entries, err := d.store.ReadDir(uninterrupted(ctx), d.ino, at, limit)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}
