package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// The inode numbers and names that belong to hmcfs.
const (
	keysIno    metadata.Ino = 2
	controlIno metadata.Ino = 3
	versionIno metadata.Ino = 4
	configIno  metadata.Ino = 5
	statsIno   metadata.Ino = 6
	eventsIno  metadata.Ino = 7
	nodesIno   metadata.Ino = cluster.NodesIno
	topoIno    metadata.Ino = 9

	// viewBit marks a node of a view; the other bits are a hash.
	viewBit metadata.Ino = 1 << 61
	// keyBit marks the symlink under keys/ of the object with the other bits; together with
	// keyViewBit, the one to the tensors of that object; together with otherKeyBit, of a
	// tensor's key or of another node's, with a hash of the key in the other bits.
	keyBit      metadata.Ino = 1 << 62
	otherKeyBit metadata.Ino = 1 << 60
	keyViewBit  metadata.Ino = 1 << 59

	keysName    = "keys"
	controlName = ".hmcfs"
	publishName = "publish"
	nodesName   = "nodes"
	// keyedName is the directory, within that of a device, of the objects that hmcfs makes
	// for keys.
	keyedName = ".keys"
)

// isReserved reports whether an inode is not one of the store's that users may change: the
// root, nodes/, keys/ and .hmcfs/, the contents of the last two, and views. publish/
// belongs to the store, and the contents of nodes/ to other nodes.
func isReserved(ino metadata.Ino) bool {
	return ino < metadata.FirstIno && ino != metadata.PublishIno || ino >= viewBit
}

func isView(ino metadata.Ino) bool { return ino >= viewBit && ino < keyBit }

func isKey(ino metadata.Ino) bool { return ino >= keyBit }

// providedInode is an inode that the mount itself provides, as opposed to the tree. Each
// kind is a type: rootDir, controlDir, controlFile, keysDir, keyLink, otherKeyLink,
// nodesDir and viewInode. base has the answers that most of them share.
type providedInode interface {
	// attr returns its attributes. Its owner is the root directory's.
	attr() (objects.Attr, error)
	// parent returns the number of its directory.
	parent() metadata.Ino
	// lookup finds a name in it. done is false for a name that the tree may have.
	lookup(name string, out *fuse.EntryOut) (done bool, status fuse.Status)
	// list returns a lister of its entries for a handle.
	list(cancel <-chan struct{}, header *fuse.InHeader, h *dirHandle) (lister, error)
	open(c *fuse.Caller, flags uint32, out *fuse.OpenOut) fuse.Status
	xattr(name string) ([]byte, error)
	xattrs() ([]string, error)
	// device returns the inode of the tree whose device statfs describes.
	device() (metadata.Ino, error)
	// refusal returns the status that refuses a change of it, or of its entries.
	refusal() fuse.Status
}

// counted is a provided inode that exists as long as the kernel has references to it.
type counted interface {
	// enter fills in the answer for the inode, and counts a reference.
	enter(out *fuse.EntryOut) fuse.Status
	// forget drops references.
	forget(refs uint64)
}

var (
	_ counted = otherKeyLink{}
	_ counted = viewInode{}
)

// provided returns an inode that the mount provides, or nil for one of the tree.
func (f *filesystem) provided(ino metadata.Ino) providedInode {
	if !isReserved(ino) {
		return nil
	}
	b := base{f, ino}
	switch {
	case isView(ino):
		return viewInode{b}
	case isOtherKey(ino):
		return otherKeyLink{b}
	case isKey(ino):
		return keyLink{b}
	}
	switch ino {
	case metadata.RootIno:
		return rootDir{b}
	case controlIno:
		return controlDir{b}
	case versionIno, configIno, statsIno, eventsIno, topoIno:
		return controlFile{b}
	case keysIno:
		return keysDir{b}
	case nodesIno:
		if f.opts.Cluster != nil {
			return nodesDir{b}
		}
		return b
	default:
		return b
	}
}

// base is an immutable inode in the root, without entries, content or attributes. On its
// own it represents a number that is not in use.
type base struct {
	fs  *filesystem
	ino metadata.Ino
}

func (b base) attr() (objects.Attr, error) { return objects.Attr{}, metadata.ErrNotExist }

func (b base) parent() metadata.Ino { return metadata.RootIno }

func (b base) lookup(string, *fuse.EntryOut) (bool, fuse.Status) {
	return true, b.fs.errs.status(metadata.ErrNotDir)
}

func (b base) list(<-chan struct{}, *fuse.InHeader, *dirHandle) (lister, error) {
	return nil, metadata.ErrNotDir
}

func (b base) open(_ *fuse.Caller, flags uint32, _ *fuse.OpenOut) fuse.Status {
	if isWriting(flags) || flags&unix.O_TRUNC != 0 {
		return fuse.EPERM
	}
	return b.fs.errs.status(metadata.ErrIsDir)
}

func (b base) xattr(string) ([]byte, error) { return nil, metadata.ErrNoXattr }

func (b base) xattrs() ([]string, error) { return nil, nil }

func (b base) device() (metadata.Ino, error) { return metadata.RootIno, nil }

func (b base) refusal() fuse.Status { return fuse.EPERM }

// attrAs returns the attributes of an inode that was created with the mount.
func (b base) attrAs(mode metadata.Mode, nlink uint32, size uint64) (objects.Attr, error) {
	root, err := b.fs.store.Attr(background(), metadata.RootIno)
	if err != nil {
		return objects.Attr{}, err
	}
	born := b.fs.born
	return objects.Attr{State: objects.StateLive, Inode: metadata.Inode{
		Ino: b.ino, Gen: root.Gen, UID: root.UID, GID: root.GID, Mode: mode, Nlink: nlink, Size: size,
		Atime: born, Mtime: born, Ctime: born, Btime: born,
	}}, nil
}

// enterProvided fills in the answer to a lookup by number.
func (f *filesystem) enterProvided(n providedInode, out *fuse.EntryOut) fuse.Status {
	if c, ok := n.(counted); ok {
		return c.enter(out)
	}
	return f.answer(n.parent(), n, out)
}

// answer fills in the answer for an entry of a directory that is a provided inode.
func (f *filesystem) answer(dir metadata.Ino, n providedInode, out *fuse.EntryOut) fuse.Status {
	a, err := n.attr()
	if err != nil {
		return f.errs.status(err)
	}
	f.fillEntry(dir, out, &a)
	return fuse.OK
}

// refusal returns the status that refuses a change of provided inodes: views are read-only
// as a whole, and the others cannot be changed by users. It is OK if none of inos is
// provided.
func (f *filesystem) refusal(inos ...metadata.Ino) fuse.Status {
	status := fuse.OK
	for _, ino := range inos {
		n := f.provided(ino)
		if n == nil {
			continue
		}
		if status = n.refusal(); status == fuse.EROFS {
			return status
		}
	}
	return status
}
