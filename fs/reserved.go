package fs

import (
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
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
	// keyBit marks the symlink under keys/ of the object with the other bits; with
	// otherKeyBit, of another node's key, of which the others are a hash.
	keyBit      metadata.Ino = 1 << 62
	otherKeyBit metadata.Ino = 1 << 60

	keysName    = "keys"
	controlName = ".hmcfs"
	publishName = "publish"
	nodesName   = "nodes"
	// keyedName is the directory, in that of a device, of the objects that
	// hmcfs makes for keys.
	keyedName = ".keys"
)

// isReserved says that an inode is not one of the store's that users may
// change: the root, nodes/, keys/, .hmcfs/ and what is in the last two, and
// views. publish/ is the store's, and what is in nodes/ other nodes'.
func isReserved(ino metadata.Ino) bool {
	return ino < metadata.FirstIno && ino != metadata.PublishIno || ino >= viewBit
}

// isView says that an inode is of a view.
func isView(ino metadata.Ino) bool { return ino >= viewBit && ino < keyBit }

// refusal is the answer to a change of reserved inodes: a view is read-only
// as a whole, the rest is not the user's to change. It is OK where none is
// reserved.
func refusal(inos ...metadata.Ino) fuse.Status {
	status := fuse.OK
	for _, ino := range inos {
		switch {
		case isView(ino):
			return fuse.EROFS
		case isReserved(ino):
			status = fuse.EPERM
		}
	}
	return status
}

// isKey says that an inode is a symlink under keys/.
func isKey(ino metadata.Ino) bool { return ino >= keyBit }

// reservedParent returns the directory of a reserved inode.
func reservedParent(ino metadata.Ino) metadata.Ino {
	switch {
	case isKey(ino):
		return keysIno
	case ino == versionIno, ino == configIno, ino == statsIno, ino == eventsIno, ino == topoIno:
		return controlIno
	}
	return metadata.RootIno
}

// lookupReserved finds a name in a directory of hmcfs's own. It is not done
// with a name of the root that the store has to know.
func (f *filesystem) lookupReserved(cancel <-chan struct{}, header *fuse.InHeader, parent metadata.Ino, name string, out *fuse.EntryOut) (done bool, status fuse.Status) {
	switch {
	case isView(parent):
		return true, f.lookupView(parent, name, out)
	case parent == nodesIno && f.opts.Cluster != nil:
		return true, f.lookupNode(name, out)
	}
	ino, err := f.findReserved(parent, name)
	if errors.Is(err, metadata.ErrInvalidKey) {
		return true, fuse.ENOENT // no object can carry such a key
	}
	if parent == keysIno && isMissing(err) && f.opts.Cluster != nil {
		return true, f.lookupOtherKey(name, out)
	}
	if parent == metadata.RootIno && ino == 0 {
		return false, fuse.OK
	}
	if err != nil {
		return true, f.errs.status(err)
	}
	a, err := f.attr(cancel, header, ino)
	if err != nil {
		return true, f.errs.status(err)
	}
	if ino == metadata.PublishIno {
		return true, f.enter(parent, out, &a)
	}
	f.fillEntry(parent, out, &a)
	return true, fuse.OK
}

// lookupNode finds a node in nodes/.
func (f *filesystem) lookupNode(name string, out *fuse.EntryOut) fuse.Status {
	if len(name) > metadata.MaxName {
		return errNameTooLong
	}
	a, err := f.tree.NodeAttr(background(), members.Name(name))
	if err != nil {
		return f.errs.status(err)
	}
	return f.enter(nodesIno, out, &a)
}

// findReserved returns the number behind a name.
func (f *filesystem) findReserved(parent metadata.Ino, name string) (metadata.Ino, error) {
	if len(name) > metadata.MaxName {
		return 0, metadata.ErrNameTooLong
	}
	switch parent {
	case metadata.RootIno:
		for _, e := range f.rootEntries() {
			if e.name == name {
				return e.ino, nil
			}
		}
	case controlIno:
		if name == eventsName {
			return eventsIno, nil
		}
		for _, e := range controlEntries() {
			if e.name == name {
				return e.ino, nil
			}
		}
	case keysIno:
		ino, err := f.store.KeyIno(background(), name)
		return ino | keyBit, err
	default:
		return 0, metadata.ErrNotDir
	}
	return 0, metadata.ErrNotExist
}

// rootEntries are the entries of the root beside the devices. nodes/ is there
// where there is a cluster.
func (f *filesystem) rootEntries() []dirEntry {
	all := []dirEntry{
		{name: controlName, ino: controlIno, mode: metadata.TypeDir, offset: dotsEnd + 1},
		{name: keysName, ino: keysIno, mode: metadata.TypeDir, offset: dotsEnd + 2},
		{name: publishName, ino: metadata.PublishIno, mode: metadata.TypeDir, offset: dotsEnd + 3},
		{name: nodesName, ino: nodesIno, mode: metadata.TypeDir, offset: dotsEnd + 4},
	}
	if f.opts.Cluster == nil {
		all = all[:len(all)-1]
	}
	return all
}

// eventsName is the file of .hmcfs/ that is not listed, since a copy of the
// tree would wait for its end.
const eventsName = "events"

// controlEntries are the files of .hmcfs/ that are listed.
func controlEntries() []dirEntry {
	return []dirEntry{
		{name: "config", ino: configIno, mode: metadata.TypeRegular, offset: dotsEnd + 1},
		{name: "stats", ino: statsIno, mode: metadata.TypeRegular, offset: dotsEnd + 2},
		{name: "topology.json", ino: topoIno, mode: metadata.TypeRegular, offset: dotsEnd + 3},
		{name: "version", ino: versionIno, mode: metadata.TypeRegular, offset: dotsEnd + 4},
	}
}

// reservedAttr makes the attributes of a reserved inode. Its owner is the
// root's.
func (f *filesystem) reservedAttr(ino metadata.Ino) (objects.Attr, error) {
	switch {
	case isOtherKey(ino) && f.opts.Cluster != nil:
		return f.otherKeyAttr(ino)
	case isKey(ino):
		return f.keyAttr(ino)
	case isView(ino):
		n, err := f.views.get(ino)
		if err == nil {
			err = f.views.check(background(), n)
		}
		if err != nil {
			return objects.Attr{}, err
		}
		return f.views.attr(n)
	}
	a, err := f.store.Attr(background(), metadata.RootIno)
	if err != nil {
		return objects.Attr{}, err
	}
	if ino == metadata.RootIno {
		a.Nlink += uint32(len(f.rootEntries()))
		return a, nil
	}
	own := metadata.Inode{
		Ino: ino, Gen: a.Gen, UID: a.UID, GID: a.GID,
		Atime: f.born, Mtime: f.born, Ctime: f.born, Btime: f.born,
	}
	switch ino {
	case keysIno, controlIno:
		own.Mode, own.Nlink = metadata.TypeDir|0o555, 2
	case nodesIno:
		if f.opts.Cluster == nil {
			return objects.Attr{}, metadata.ErrNotExist
		}
		own.Mode, own.Nlink = metadata.TypeDir|0o555, 2+uint32(len(f.opts.Cluster.Nodes()))
	case versionIno, configIno, statsIno, eventsIno, topoIno:
		own.Mode, own.Nlink = metadata.TypeRegular|0o444, 1
		own.Size = f.controlSize(ino)
	default:
		return objects.Attr{}, metadata.ErrNotExist
	}
	return objects.Attr{Inode: own, State: objects.StateLive}, nil
}

// keyAttr makes the attributes of keys/KEY. The symlink is there as long as
// the object carries a key.
func (f *filesystem) keyAttr(ino metadata.Ino) (objects.Attr, error) {
	a, err := f.store.Attr(background(), ino&^keyBit)
	if err != nil {
		return objects.Attr{}, err
	}
	if a.Key == "" {
		return objects.Attr{}, metadata.ErrNotExist
	}
	path, err := f.store.KeyPath(background(), a.Key)
	if err != nil {
		return objects.Attr{}, err
	}
	a.Ino = ino
	a.Mode = metadata.TypeSymlink | 0o777
	a.Nlink = 1
	a.Allocated = 0
	a.Target = "../" + strings.TrimPrefix(path, "/")
	return a, nil
}
